"""One node of a test's cluster over all its lives: started, paused, killed, started again.

What: `ClusterNode` is a node as the cluster knows it: its settings, its faults, in which state it
is. A `Life` is one run of it, on a thread (`thread_life.py`) or as a process (`process_life.py`).
Rules kept: a call that does not fit the state is one `ClusterError` that says why; faults outlive a
life, as a network and a disk do; calls may come from several threads, and a kill never waits for a
start or a stop that is under way. Not here: what several nodes have in common.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from anabranch.testing.faults import NodeFaults

STOP_SECONDS = 60.0
"""How long an orderly stop may take before it is said that something hangs: on a machine that does
much else it first waits for the disk."""
LOOK_SECONDS = 0.05

STARTING, RUNNING, PAUSED = "starting", "running", "paused"
STOPPED, KILLED, ENDED = "stopped", "killed", "ended"


class ClusterError(RuntimeError):
    """The cluster cannot do that; the text says why and what to do."""


class ServedNode(NamedTuple):
    """What a node tells once it serves clients."""

    cluster_id: str
    port: int


class NodePlan(NamedTuple):
    """What a node is started with."""

    broker_id: int
    rack: str | None
    port: int
    folder: str
    controller_port: int
    settings: Mapping[str, str]
    peers: Mapping[int, int]
    """Ports of the other nodes' listeners, with their ids."""
    controllers: frozenset[int] = frozenset()
    """Those of these ports that are of controllers."""
    prefix: tuple[str, ...] = ()
    """What stands before the command of its process, as what enters a namespace does."""

    @property
    def all_settings(self) -> dict[str, str]:
        """The settings, with the listeners unless they name their own."""
        clients = f"PLAINTEXT://127.0.0.1:{self.port}"
        listeners = f"{clients},CONTROLLER://127.0.0.1:{self.controller_port}"
        return {"listeners": listeners, **self.settings}


class Life(ABC):
    """One run of a node."""

    @abstractmethod
    def wait_serving(self, seconds: float) -> ServedNode | None:
        """What it tells once it serves, or None when it does not after `seconds` or has ended."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""

    @abstractmethod
    def why_over(self) -> tuple[str, BaseException | None]:
        """Why it ended by itself, in one line, with the fault where that is a bug."""

    @abstractmethod
    def end(self, seconds: float) -> bool:
        """Stop in order, and give back what this process holds of it; whether it ended in time."""

    @abstractmethod
    def strike(self) -> None:
        """Begin to `kill`, without waiting."""

    @abstractmethod
    def kill(self) -> None:
        """End at once, with nothing written, flushed or said; may be called again."""

    @abstractmethod
    def pause(self) -> None:
        """Stand still; returns when it does."""

    @abstractmethod
    def resume(self) -> None:
        """Go on."""

    @abstractmethod
    def statistics(self) -> dict[str, Any]:
        """Counts of the node. Raises ClusterError when it does not answer."""

    @property
    def pid(self) -> int:
        """Its process, 0 when it has none of its own."""
        return 0


class ClusterNode:
    """A node of the cluster; see the module's docstring."""

    def __init__(
        self, plan: NodePlan, faults: NodeFaults, begin: Callable[[NodePlan, NodeFaults], Life]
    ) -> None:
        self.plan = plan
        self.faults = faults
        self.serving: ServedNode | None = None
        """What it told last; None before it served for the first time."""
        self._begin = begin
        self._life: Life | None = None
        self._ended_as = STOPPED
        self._is_paused = False
        self._is_serving = False
        self._changing = threading.RLock()

    @property
    def name(self) -> str:
        """As sentences begin."""
        return f"Broker {self.plan.broker_id}"

    @property
    def port(self) -> int:
        """Where clients find it."""
        return self.plan.port if self.serving is None else self.serving.port

    @property
    def pid(self) -> int:
        """Its process, 0 when it has none."""
        return 0 if self._life is None or self._life.is_over else self._life.pid

    @property
    def state(self) -> str:
        """One of starting, running, paused, stopped, killed, and ended: by itself."""
        if self._life is None or self._life.is_over:
            return self._ended_as
        if self._is_paused:
            return PAUSED
        return RUNNING if self._is_serving or self._hear(self._life, 0) else STARTING

    def why(self) -> str:
        """The state as a sentence."""
        state = self.state
        if state == ENDED and self._life is not None:
            return f"{self.name} has ended: {self._life.why_over()[0]}"
        was = " was" if state in (STOPPED, KILLED) else " is"
        return f"{self.name}{was} {state}"

    # Lives.

    def launch(self) -> None:
        """Begin a life; returns at once."""
        with self._changing:
            if self._life is not None and not self._life.is_over:
                raise ClusterError(f"{self.name} is running already.")
            if self._life is not None:
                self._life.end(0)
            plan = self.plan._replace(port=self.port)
            self._is_paused = self._is_serving = False
            self._life = self._begin(plan, self.faults)
            self._ended_as = ENDED  # not before: until then the last life's end is told

    def wait_serving(self, until: float) -> None:
        """Return when clients are served. Raises ClusterError at `until`, a monotonic time, and
        when the node ends before."""
        life = self._life
        while life is not None:
            if self._hear(life, max(0.0, min(LOOK_SECONDS, until - time.monotonic()))):
                return
            if life.is_over or life is not self._life:
                break
            if time.monotonic() >= until:
                raise ClusterError(f"{self.name} does not serve yet.")
        if life is None or self._ended_as != ENDED:
            raise ClusterError(f"{self.name} does not serve: it was {self._ended_as}.")
        why, cause = life.why_over()
        raise ClusterError(why) from cause

    def _hear(self, life: Life, seconds: float) -> bool:
        """Whether a life tells in time that it serves; nobody need have waited for that."""
        found = life.wait_serving(seconds)
        if found is None:
            return False
        with self._changing:
            if life is self._life:
                self.serving, self._is_serving = found, True
        return True

    def stop(self) -> None:
        """Stop in order; returns when it has ended."""
        with self._changing:
            life = self._living()
            if self._is_paused:
                raise ClusterError(f"{self.name} is paused: resume it first, or kill it.")
            self._ended_as = STOPPED
        if not life.end(STOP_SECONDS):
            raise ClusterError(f"{self.name} did not stop within {STOP_SECONDS:g} seconds.")

    def strike(self) -> Life:
        """Begin to kill it; who wants to see the end calls `kill` of the life."""
        with self._changing:
            life = self._living()
            self._ended_as = KILLED
            life.strike()
        return life

    def pause(self) -> None:
        """Let everything of it stand still."""
        with self._changing:
            life = self._living()
            if self._is_paused:
                raise ClusterError(f"{self.name} is paused already.")
            self._is_paused = True
        life.pause()

    def resume(self) -> None:
        """Let it go on."""
        with self._changing:
            life = self._living()
            if not self._is_paused:
                raise ClusterError(f"{self.name} is not paused.")
            self._is_paused = False
        life.resume()

    def end(self) -> bool:
        """End it for good, in order where that can be; whether nothing of it is left."""
        with self._changing:
            life = self._life
            if life is None:
                return True
            if not life.is_over:
                self._ended_as = STOPPED
        if self._is_paused:
            life.kill()
        return life.end(STOP_SECONDS)

    def statistics(self) -> dict[str, Any]:
        """Counts of the node."""
        return self._living().statistics()

    def _living(self) -> Life:
        if self._life is None or self._life.is_over:
            raise ClusterError(f"{self.why()}: start it with start_broker.")
        return self._life
