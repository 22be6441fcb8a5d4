"""The machines of a rehearsal: processes that are killed, stopped, cut off and started again.

What: `Machines` does to the processes of a `LocalCluster` what a rehearsal's events do to simulated
nodes, and knows which of them run. A power loss is SIGKILL of a machine whose links were cut just
before, and stay so until it is started: other nodes do not learn of it, and no dial is answered.
What differs from a real one: the system keeps what the process had written, synced or not. The
object store is away when its folder is, and the coordinator when its lock is held.

Rule kept: every call returns when the thing has happened. Not here: what is seen (`probe.py`).
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.sim.rehearsal.model import Rehearsal
from anabranch.testing.local_cluster import LocalCluster

START_SECONDS = 120.0
"""A node that waits for the lease of a dead controller takes nine seconds and more, and several
that start on a busy machine a minute."""

LINKS = {"all": "all", "data": "replication", "control": "controller"}
"""What a plan calls the links of a cut, and what the cluster does."""
SESSION = "broker.session.timeout.ms"
SESSION_SECONDS = 18.0
"""Twice the default, unless the plan says it: what fits into a session in the simulator, a cut or
the start of two nodes, is to fit into one on a busy machine too."""
SESSION_STARTS = 25
"""A session lasts as long as so many processes need to start: on an idle machine that is less."""
SESSION_SECONDS_MOST = 60.0
"""Sessions are waited for: a rehearsal that lasts an hour helps less than one that differs."""


def session_seconds(start_seconds: float) -> float:
    """How long sessions last on a machine where a process needs that long to start."""
    return min(max(SESSION_SECONDS, SESSION_STARTS * start_seconds), SESSION_SECONDS_MOST)


def _start_seconds() -> float:
    """How long a node's process takes here, now, until it reads what it is to do; it ends then."""
    begin = time.monotonic()
    command = [sys.executable, "-P", "-m", "anabranch.testing.node_process"]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    return time.monotonic() - begin


class Machines:
    """The processes of one cluster, by broker id."""

    def __init__(self, plan: Rehearsal) -> None:
        racks = [plan.racks.get(each, "") for each in plan.brokers]
        self.session_seconds = session_seconds(_start_seconds())
        """Unless the plan has another one."""
        self.cluster = LocalCluster(
            brokers=len(plan.brokers),
            racks=racks if all(racks) else None,
            processes=True,
            controller=plan.controller,
            later=plan.later,
            config={
                "min.insync.replicas": None,
                SESSION: round(1_000 * self.session_seconds),
                **plan.settings,
            },
            start_timeout_seconds=START_SECONDS,
        )
        self.brokers = set(plan.brokers)
        self.later = set(plan.later)
        """Those that only an event starts."""
        self.up: set[int] = set()
        self.starting: set[int] = set()
        """Those that do not serve yet."""
        self.frozen: set[int] = set()
        self.dark: set[int] = set()
        """Without power: down, with its connections left open."""
        self.folders: dict[int, Path] = {}
        self.away: set[str] = set()
        """`objects`, `coordinator`: what diskless topics lie in and is not there now."""
        self._undo = {"objects": ExitStack(), "coordinator": ExitStack()}
        self._addresses: dict[int, tuple[str, int]] = {}

    def begin(self) -> None:
        """Start all but later ones, the one that is to be the active controller first."""
        self.cluster.start()
        self.up = self.brokers - self.later
        for each in self.cluster.brokers:
            self.folders[each.broker_id] = Path(each.folder)
            self._addresses[each.broker_id] = (each.host, each.port)

    def end(self) -> None:
        """Leave nothing behind."""
        for name in tuple(self.away):
            self.restore(name)
        self.cluster.stop()

    def address(self, broker: int) -> tuple[str, int]:
        """Where clients find a broker."""
        return self._addresses[broker]

    @property
    def bootstrap(self) -> str:
        """Every broker that answers."""
        awake = sorted(self.up - self.frozen)
        return ",".join("{}:{}".format(*self._addresses[each]) for each in awake)

    # What happens to them.

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        if broker in self.up:
            self.cluster.kill(broker)
            self.up.discard(broker)
            self.frozen.discard(broker)

    def power_loss(self, brokers: Iterable[int]) -> None:
        """Their machines go dark, all at once."""
        hit = [each for each in brokers if each in self.up]
        for each in hit:
            self.cluster.cut(each)
            self.dark.add(each)
        for each in hit:
            self.kill(each)

    def shut_down(self, broker: int) -> None:
        """SIGTERM, and wait for the end."""
        if broker in self.up:
            self.cluster.stop_broker(broker)
            self.up.discard(broker)

    def start(self, broker: int) -> None:
        """Start one that is down."""
        if broker in self.up:
            return
        if broker in self.dark:
            self.dark.discard(broker)
            for other in self.brokers - self.dark - {broker}:
                self.cluster.heal(broker, other)
        self.up.add(broker)
        self.starting.add(broker)
        try:
            self.cluster.start_broker(broker, timeout_seconds=START_SECONDS)
        finally:
            self.starting.discard(broker)

    def pause(self, broker: int) -> None:
        """SIGSTOP."""
        if broker in self.up:
            self.cluster.pause(broker)
            self.frozen.add(broker)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        if broker in self.frozen:
            self.cluster.resume(broker)
            self.frozen.discard(broker)

    def cut(self, one: int, other: int, *, one_way: bool, plane: str) -> None:
        """No byte from `one` to `other`, and back unless it is one-way."""
        self.cluster.cut(one, other, one_way=one_way, links=LINKS[plane])

    def heal(self) -> None:
        """Every link is whole again, but those of machines without power."""
        self.cluster.heal()
        for each in self.dark:
            self.cluster.cut(each)

    def wipe(self, broker: int) -> None:
        """Start one with an empty disk."""
        self.kill(broker)
        shutil.rmtree(self.folders[broker])
        self.folders[broker].mkdir()
        self.start(broker)

    # What diskless topics lie in.

    @property
    def _folder(self) -> Path:
        return next(iter(self.folders.values())).parent

    def outage(self, name: str) -> None:
        """Make the object store, or the coordinator, unreachable."""
        if name in self.away:
            return
        self.away.add(name)
        if name == "objects":
            objects = self._folder / OBJECTS
            aside = objects.rename(objects.with_name("objects-away"))
            self._undo[name].callback(aside.rename, objects)
        else:
            turn = self._undo[name].enter_context((self._folder / f"{COORDINATOR}.turn").open())
            fcntl.flock(turn, fcntl.LOCK_EX)

    def restore(self, name: str) -> None:
        """It is there again."""
        self._undo[name].close()
        self.away.discard(name)

    def controller(self) -> int:
        """The active controller's id."""
        return self.cluster.controller()
