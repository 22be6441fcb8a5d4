"""`LocalCluster`: a real cluster in this process, for as long as a test needs it.

What: the nodes run on a thread with an event loop of their own, so that clients in C, clients that
block and clients on the test's own loop all work, with `with` and with `async with`. Ports are free
ones, the folder is temporary. Rules kept: after `stop` no thread, socket, file or signal handler of
ours is left; a cluster that cannot start says why in one exception, `ClusterError`.

Users name brokers, racks and settings in the constructor and everything else by calls on the
cluster or on one of `cluster.brokers`: where a cluster has more brokers, nothing of that changes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from anabranch.client.ports import free_ports
from anabranch.testing.cluster_thread import ClusterError, ClusterThread

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.server.node import Node

__all__ = ["FOR_TESTS", "ClusterError", "LocalBroker", "LocalCluster"]

T = TypeVar("T")

FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
}
"""Settings in which a test cluster differs from a production one, unless the test says otherwise:
a first consumer waits for nobody, sessions may be short, cleaning and retention run often."""


MOST_BROKERS = 100
USUAL_REPLICAS = 3


class LocalBroker(NamedTuple):
    """One broker of a running cluster."""

    broker_id: int
    rack: str | None
    host: str
    port: int
    folder: str
    """Where its logs are."""


class LocalCluster:
    """A cluster for a test.

    `config` are settings of every broker by Kafka's names, of any type: True is `true`, a list is
    joined by commas, None takes one of `FOR_TESTS` back; they go over `FOR_TESTS`. `racks` gives
    each broker one. `folder` keeps the data somewhere; by default it is temporary and removed by
    `stop`. `port` is the first broker's, 0 a free one.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        folder: str | os.PathLike[str] | None = None,
        port: int = 0,
        start_timeout_seconds: float = 30.0,
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise ClusterError(f"LocalCluster runs 1 to {MOST_BROKERS} brokers, not {brokers}.")
        if racks is not None and len(racks) != brokers:
            raise ClusterError(f"{len(racks)} racks do not fit {brokers} broker(s): one for each.")
        several = _for_several(brokers) if brokers > 1 else {}
        self.config = _texts({**FOR_TESTS, **several, **(config or {})})
        self._racks = list(racks) if racks is not None else [None] * brokers
        self._folder = None if folder is None else os.fspath(folder)
        self._port = port
        self._start_timeout_seconds = start_timeout_seconds
        self._thread: ClusterThread | None = None
        self._last_log = ""

    # Starting and stopping.

    def start(self) -> Self:
        """Start the cluster; returns when clients are served. Raises ClusterError."""
        if self._thread is not None:
            raise ClusterError("The cluster is running already.")
        thread = ClusterThread(self._settings, self._folder)
        try:
            thread.start(self._start_timeout_seconds)
        except BaseException:
            self._last_log = thread.log.text
            raise
        self._thread = thread
        return self

    def stop(self) -> None:
        """Stop the cluster and remove its temporary folder; may be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.stop()
            finally:
                self._last_log = thread.log.text

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._thread is not None else "stopped"
        return f"<LocalCluster {where}>"

    # What is there.

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: `host:port` of every broker, with commas between them."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> list[LocalBroker]:
        """The brokers, by id, those that are stopped too."""
        return [_described(node) for node in self._running().nodes.values()]

    @property
    def cluster_id(self) -> str:
        """The id of the cluster: a new one for each temporary folder."""
        return self._running().running[0].cluster_id

    @property
    def log(self) -> str:
        """What the nodes have logged, the newest lines last; also after `stop`."""
        return self._last_log if self._thread is None else self._thread.log.text

    def statistics(self) -> dict[int, dict[str, Any]]:
        """Counts of each broker, by id: partitions, groups, connections."""
        thread = self._running()
        return thread.call(_statistics(thread.running))

    # Brokers.

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker in order: its leaderships move first. Raises ClusterError."""
        thread = self._running_broker(broker_id)
        if len(thread.running) == 1:
            raise ClusterError("The last broker stays: stop() ends the cluster.")
        thread.call(thread.stop_node(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, at its address and with its folder; returns when it serves.
        Raises ClusterError."""
        thread = self._running()
        if broker_id in {node.config.node_id for node in thread.running}:
            raise ClusterError(f"Broker {broker_id} is running already.")
        if broker_id not in thread.nodes:
            raise ClusterError(f"There is no broker {broker_id}: {_ids(thread)}.")
        thread.call(thread.start_node(broker_id))

    def _running_broker(self, broker_id: int) -> ClusterThread:
        thread = self._running()
        if broker_id not in {node.config.node_id for node in thread.running}:
            raise ClusterError(f"No broker {broker_id} is running: {_ids(thread)}.")
        return thread

    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; returns when clients can use it. Raises ClusterError with the
        controller's sentence."""
        from anabranch.client import admin

        settings = _texts(config or {})
        factor = admin.NO_COUNT if replication_factor is None else replication_factor

        async def work(cluster: Cluster) -> None:
            await admin.create_topic(
                cluster, name, partitions=partitions, replication_factor=factor, configs=settings
            )

        self._ask(f"create topic {name!r}", work)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        from anabranch.client import admin

        async def work(cluster: Cluster) -> None:
            await admin.delete_topic(cluster, name)

        self._ask(f"delete topic {name!r}", work)

    def topics(self) -> list[str]:
        """The topics there are, those that brokers keep for themselves left out."""

        async def work(cluster: Cluster) -> list[str]:
            found = (await cluster.metadata(None)).topics
            return sorted(each.name or "" for each in found if not each.is_internal)

        return self._ask("list topics", work)

    # Inside.

    def _settings(self, folder: str) -> list[dict[str, str]]:
        """The settings of each broker: one has the folder for itself, several share it."""
        count = len(self._racks)
        controllers = free_ports(count) if count > 1 else [0]
        each_folder = [folder] if count == 1 else [f"{folder}/broker-{i + 1}" for i in range(count)]
        found = []
        for index, rack in enumerate(self._racks):
            port = self._port + index if self._port else 0
            settings = {
                "node.id": str(index + 1),
                "log.dirs": each_folder[index],
                "listeners": f"PLAINTEXT://127.0.0.1:{port},"
                f"CONTROLLER://127.0.0.1:{controllers[index]}",
            }
            if count > 1:
                servers = ",".join(f"127.0.0.1:{each}" for each in controllers)
                settings["controller.quorum.bootstrap.servers"] = servers
                settings["metadata.store.url"] = f"sqlite://{folder}/metadata-store.db"
            if rack is not None:
                settings["broker.rack"] = rack
            found.append({**settings, **self.config})
        return found

    def _running(self) -> ClusterThread:
        if self._thread is None:
            raise ClusterError("The cluster is not running: use it within `with`, or call start().")
        return self._thread

    def _ask(self, what: str, work: Callable[[Cluster], Awaitable[T]]) -> T:
        from anabranch.client.cluster import Cluster
        from anabranch.core.errors import ApiError

        thread = self._running()

        async def run() -> T:
            async with Cluster(_addresses(thread.running)) as cluster:
                return await work(cluster)

        try:
            return thread.call(run())
        except ApiError as fault:
            raise ClusterError(f"Cannot {what}: {fault.message} ({fault.code.name})") from None


def _for_several(brokers: int) -> dict[str, object]:
    """What more brokers than one are for, unless the test says otherwise."""
    replicas = min(USUAL_REPLICAS, brokers)
    return {"default.replication.factor": replicas, "min.insync.replicas": max(1, replicas - 1)}


def _described(node: Node) -> LocalBroker:
    host, _, port = node.bootstrap_servers.rpartition(":")
    config = node.config
    return LocalBroker(config.node_id, config.rack, host, int(port), config.log_dirs[0])


def _addresses(nodes: Sequence[Node]) -> str:
    return ",".join(node.bootstrap_servers for node in nodes)


def _ids(thread: ClusterThread) -> str:
    running = ", ".join(str(node.config.node_id) for node in thread.running)
    return f"the brokers are 1 to {len(thread.nodes)}, and {running} run"


async def _statistics(nodes: Sequence[Node]) -> dict[int, dict[str, Any]]:
    found = {}
    for node in nodes:
        assert node.broker is not None
        found[node.config.node_id] = {
            "partitions": node.broker.partitions.statistics(),
            "groups": node.broker.broker.groups.statistics(),
            "listeners": {each.name: each.statistics() for each in node.acceptors},
        }
    return found


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as a properties file has them; those that are None are left out."""
    return {name: _text(each) for name, each in settings.items() if each is not None}


def _text(setting: object) -> str:
    if isinstance(setting, bool):
        return "true" if setting else "false"
    if isinstance(setting, list | tuple | set | frozenset):
        return ",".join(map(_text, setting))
    return str(setting)
