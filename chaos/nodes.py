"""The three brokers of a run, as faults see them.

What: `testing.LocalCluster` of processes, with calls that say whether they did anything, since
faults overlap: who is to be killed may be dead already. Rules kept: no call waits for a node that
starts; a node that ended by itself is remembered in `surprises`, and started again. Not here: which
fault when (`plan`), how a fault is made (`anabranch.testing`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anabranch.cli.local_brokers import answers
from anabranch.client.ports import free_ports
from anabranch.testing import ClusterError, LocalCluster
from anabranch.testing.nodes import NodePlan
from chaos import secure
from chaos.network import Host
from chaos.node_logs import NO_ROOM

IDS = (1, 2, 3)
RACKS = ("a", "b", "c")
LISTENERS = ("CLIENTS", "INTERNAL", "CONTROLLER")
DEAD = ("stopped", "killed", "ended")
AWAY = (
    "did not start: metadata store",
    "/diskless-objects",
    "/diskless.db",
    "coordinator",
    "s3://",
)
"""A node does not start without its stores, and says so: whoever keeps it running tries again."""
START_SECONDS = 90.0
"""A run gives way to others on its machine."""
PAUSE_SECONDS = 2.0
"""Before a node that ended by itself is started again."""


class HostedCluster(LocalCluster):
    """A cluster whose nodes may each be on a host of their own, with an address for clients and
    another one for brokers and controllers; clients' stands first, as it may in any cluster."""

    def __init__(self, hosts: Mapping[int, Host], **settings: Any) -> None:
        super().__init__(**settings)
        self._hosts = hosts
        self._internal = dict(zip(hosts, free_ports(len(hosts))))

    def _plan(
        self, broker_id: int, folder: str, clients: list[int], controllers: list[int],
        common: Mapping[str, str],
    ) -> NodePlan:  # fmt: skip
        plan = super()._plan(broker_id, folder, clients, controllers, common)
        if not self._hosts:
            return plan
        host = self._hosts[broker_id]
        servers = (f"{self._hosts[each].address}:{controllers[each - 1]}" for each in self._hosts)
        settings = {
            "listeners": f"CLIENTS://{host.public}:{plan.port},"
            f"INTERNAL://{host.address}:{self._internal[broker_id]},"
            f"CONTROLLER://{host.address}:{plan.controller_port}",
            "listener.security.protocol.map": ",".join(f"{each}:PLAINTEXT" for each in LISTENERS),
            "listener.plaintext.beyond.loopback.allow": "true",
            "inter.broker.listener.name": "INTERNAL",
            "controller.quorum.bootstrap.servers": ",".join(servers),
        }
        peers = {port: each for each, port in self._internal.items() if each != broker_id}
        return plan._replace(
            settings={**plan.settings, **settings}, prefix=host.prefix,
            peers={**plan.peers, **peers},
        )  # fmt: skip


class Nodes:
    """The nodes of one cluster in `folder`; logs and data stay there when it is over."""

    def __init__(
        self, folder: Path, store: str, config: Mapping[str, object],
        hosts: Mapping[int, Host] | None = None, *, is_secure: bool = False,
    ) -> None:  # fmt: skip
        self._hosts, self._folder = hosts or {}, folder
        self.cluster = HostedCluster(
            self._hosts, brokers=len(IDS), racks=RACKS, processes=True, config=config,
            metadata_store=store, folder=folder, start_timeout_seconds=START_SECONDS,
            security=secure.PROTOCOL if is_secure else None,
        )  # fmt: skip
        self.folders = [str(folder / f"broker-{each}") for each in IDS]
        self.outputs = [folder / f"broker-{each}.log" for each in IDS]
        self.surprises: list[str] = []
        self.bootstrap = ""
        self._seen_ended: set[int] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start all and wait until they serve."""
        self.cluster.start()
        if self.cluster.security is not None:
            secure.share(self.cluster.security, self._folder)
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in self._addresses())

    def _addresses(self) -> list[tuple[str, int]]:
        """Where clients find them."""
        return [
            (self._hosts[each.broker_id].public if self._hosts else each.host, each.port)
            for each in self.cluster.brokers
        ]

    def _did(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except ClusterError:
            return False
        return True

    def serve(self) -> bool:
        """Whether all of them answer clients."""
        return all(self._answers(host, port) for host, port in self._addresses())

    def _answers(self, host: str, port: int) -> bool:
        is_secure = self.cluster.security is not None
        return secure.answers(host, port) if is_secure else answers(port, host)

    def begin(self, broker_id: int) -> bool:
        """Start its process unless there is one; returns at once."""
        self._look(broker_id)
        return self._start(broker_id)

    def _start(self, broker_id: int) -> bool:
        return self._did(lambda: self.cluster.start_broker(broker_id, wait=False))

    def kill(self, broker_id: int) -> bool:
        """SIGKILL, also of a paused process and of one that starts."""
        return self._did(lambda: self.cluster.kill(broker_id))

    def kill_all(self) -> bool:
        """SIGKILL of all at once."""
        return self._did(self.cluster.crash)

    def pause(self, broker_id: int) -> bool:
        """SIGSTOP."""
        return self._did(lambda: self.cluster.pause(broker_id))

    def resume(self, broker_id: int) -> bool:
        """SIGCONT, when it is paused."""
        return self._did(lambda: self.cluster.resume(broker_id))

    def stop(self, broker_id: int) -> bool:
        """Stop it in order, and wait for the end."""
        try:
            self.cluster.stop_broker(broker_id)
        except ClusterError as fault:
            if "did not stop" in str(fault):
                self.surprises.append(str(fault))
            return False
        return True

    def heal(self) -> None:
        """Let everybody run again, with links and disks as they should be."""
        self.cluster.heal()
        for each in IDS:
            self.cluster.heal_disk(each)
            self.resume(each)
            if self.cluster.state(each) in DEAD:
                self.begin(each)

    def look(self) -> None:
        """Notice who has ended by himself, and start him again."""
        for each in IDS:
            if self._look(each):
                threading.Timer(PAUSE_SECONDS, self._start, (each,)).start()

    def _look(self, broker_id: int) -> bool:
        with self._lock:
            if self.cluster.state(broker_id) != "ended":
                self._seen_ended.discard(broker_id)
                return False
            if broker_id in self._seen_ended:
                return False
            self._seen_ended.add(broker_id)
            try:
                self.cluster.wait_serving(broker_id, timeout_seconds=0)
            except ClusterError as fault:
                if not any(each in str(fault) for each in AWAY) and not NO_ROOM.search(str(fault)):
                    self.surprises.append(f"broker {broker_id} ended by itself: {fault}")
            return True

    def close(self) -> None:
        """Stop all in order, one after the other; one that hangs is a finding."""
        try:
            self.cluster.stop()
        except ClusterError as fault:
            self.surprises.append(str(fault))

    def abandon(self) -> None:
        """End whatever is left, however it is."""
        for each in IDS:
            self.kill(each)
        self._did(self.cluster.stop)
