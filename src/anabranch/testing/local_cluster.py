"""`LocalCluster`: a real cluster for as long as a test needs it.

What: each node runs on a thread with an event loop of its own, or as a process, so that clients
in C, clients that block and clients on the test's own loop all work, with `with` and with `async
with`. Ports are free ones, the folder is temporary. Rules kept: after `stop` no process, thread,
socket, file or signal handler of ours is left; what cannot be says why in one exception,
`ClusterError`; every call means the same on threads and as processes. Not here: what can go wrong
(`fault_calls.py`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from anabranch.client.ports import free_ports
from anabranch.core.sentences import number_of
from anabranch.server.one_machine import diskless_settings
from anabranch.testing.fault_calls import FaultCalls
from anabranch.testing.faults import MOST_BROKERS
from anabranch.testing.nodes import ClusterError, ClusterNode, NodePlan
from anabranch.testing.queries import (
    ASK_AGAIN_SECONDS,
    UNKNOWN_TOPIC_SECONDS,
    ask,
    behind,
    check_topic,
)
from anabranch.testing.running_cluster import RunningCluster
from anabranch.testing.security import ClusterSecurity

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

__all__ = ["FOR_TESTS", "ClusterError", "LocalBroker", "LocalCluster"]

T = TypeVar("T")

FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
    "offsets.retention.check.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
}
"""Settings in which a test cluster differs from a production one, unless the test says otherwise:
a first consumer waits for nobody, sessions and transactions may be short, cleaning and retention
run often."""

USUAL_REPLICAS = 3
SQLITE = "sqlite"
HOST = "127.0.0.1"
SHOWN = 3
"""Partitions that are named where many are behind."""
ANSWER_SECONDS = 5.0


class LocalBroker(NamedTuple):
    """One broker of a running cluster."""

    broker_id: int
    rack: str | None
    host: str
    port: int
    folder: str
    """Where its logs are."""


class LocalCluster(FaultCalls):
    """A cluster for a test.

    `config` are settings of every broker by Kafka's names, of any type: True is `true`, a list is
    joined by commas, None takes one of `FOR_TESTS` back; they go over `FOR_TESTS`, and what
    `broker_config` says of one broker goes over them. `racks` are given out in turn, as by
    `anabranch up`. `processes` runs each broker as a process, not on a thread: it starts more
    slowly, has a pid, and leaves the test's own process alone. `folder` keeps the data somewhere;
    by default it is temporary and removed by `stop`. `port` is the first broker's, 0 a free one.
    `metadata_store` is "sqlite", a file in the folder, or the URL of a PostgreSQL database.
    `controller` names the broker that is to be the active controller first; `later` those that do
    not start with the cluster, but with `start_broker`. `security` is SSL, SASL_PLAINTEXT or
    SASL_SSL: the cluster makes certificates and users for itself, and `cluster.security` has the
    properties of clients.
    """

    security: ClusterSecurity | None = None
    """What nodes and clients show each other; None without the argument, and while the cluster is
    not running."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        processes: bool = False,
        config: Mapping[str, object] | None = None,
        broker_config: Mapping[int, Mapping[str, object]] | None = None,
        metadata_store: str = SQLITE,
        controller: int | None = None,
        later: Collection[int] = (),
        folder: str | os.PathLike[str] | None = None,
        port: int = 0,
        start_timeout_seconds: float = 60.0,
        security: str | None = None,
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise ClusterError(f"LocalCluster runs 1 to {MOST_BROKERS} brokers, not {brokers}.")
        if racks is not None and not 1 <= len(racks) <= brokers:
            raise ClusterError(
                f"{number_of(len(racks), 'rack')} do not fit {number_of(brokers, 'broker')}: name "
                "at least one, and no more than there are brokers; they are given out in turn."
            )
        named = [*(broker_config or {}), *later, *([] if controller is None else [controller])]
        for broker_id in named:
            if not 1 <= broker_id <= brokers:
                raise ClusterError(f"There is no broker {broker_id}: the ids are 1 to {brokers}.")
        if controller in later or len(set(later)) == brokers:
            raise ClusterError("A broker starts with the cluster, and the first controller does.")
        for settings in (config or {}, *(broker_config or {}).values()):
            _check_names(settings)
        several = _for_several(brokers) if brokers > 1 else {}
        self.config = _texts({**FOR_TESTS, **several, **(config or {})})
        self._broker_config = {each: _texts(it) for each, it in (broker_config or {}).items()}
        self._racks = [racks[each % len(racks)] if racks else None for each in range(brokers)]
        self._are_processes = processes
        self._metadata_store = metadata_store
        self._first_controller = controller
        self._later = frozenset(later)
        self._folder = None if folder is None else _checked(os.fspath(folder))
        self._port = port
        self._start_timeout_seconds = start_timeout_seconds
        self._cluster: RunningCluster | None = None
        self._protocol = security
        """What clients need, while the cluster runs and was asked for it."""
        self._last_log = ""

    # Starting and stopping.

    def start(self) -> Self:
        """Start the cluster; returns when clients are served. Raises ClusterError."""
        if self._cluster is not None:
            raise ClusterError("The cluster is running already.")
        if self._protocol is not None:
            self.security = ClusterSecurity(self._protocol)
        try:
            cluster = RunningCluster(self._plans, self._folder, processes=self._are_processes)
        except BaseException:
            self._forget_security()
            raise
        try:
            cluster.start(self._start_timeout_seconds, self._first_controller, self._later)
        except BaseException:
            self._last_log = cluster.last_log
            self._forget_security()
            raise
        self._cluster = cluster
        return self

    def stop(self) -> None:
        """Stop the cluster, whatever state its brokers are in, and remove its temporary folder; may
        be called again. Paused brokers are killed, the others stop in order."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            try:
                cluster.stop()
            finally:
                self._last_log = cluster.last_log
                self._forget_security()
            from anabranch.testing.cluster_log import tell_own_faults

            tell_own_faults(self._last_log)

    def _forget_security(self) -> None:
        security, self.security = self.security, None
        if security is not None:
            security.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            return await _on_a_thread(self.start)
        except asyncio.CancelledError:
            await _on_a_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await _on_a_thread(self.stop)

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._cluster is not None else "stopped"
        return f"<LocalCluster {where}>"

    # What is there.

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: `host:port` of every broker, with commas between them."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> list[LocalBroker]:
        """The brokers, by id, those that do not run too."""
        return [_described(node) for node in self._running().nodes.values()]

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the brokers that have one now, by broker id."""
        if not self._are_processes:
            raise ClusterError(
                "The brokers are threads of this process; LocalCluster(processes=True) gives each "
                "of them one."
            )
        nodes = self._running().nodes
        return {each: node.pid for each, node in nodes.items() if node.pid}

    @property
    def cluster_id(self) -> str:
        """The id of the cluster: a new one for each temporary folder."""
        told = [node.serving for node in self._running().nodes.values()]
        return next((each.cluster_id for each in told if each is not None), "")

    @property
    def log(self) -> str:
        """What the nodes have logged, the newest lines last; also after `stop`. Processes write it
        to `broker-ID.log` in the cluster's folder."""
        return self._last_log if self._cluster is None else self._cluster.mode.log

    def statistics(self) -> dict[int, dict[str, Any]]:
        """Counts of each broker that runs, by id: partitions, groups, connections."""
        return {node.plan.broker_id: node.statistics() for node in self._running().serving}

    def controller(self, *, timeout_seconds: float = 30.0) -> int:
        """The id of the active controller; while there is none, it is waited for."""
        from anabranch.client.overview import controller_of

        async def work(cluster: Cluster) -> int:
            return (await controller_of(cluster)).controller_id

        return self._ask("find the controller", work, timeout_seconds)

    def leader(self, topic: str, partition: int = 0, *, timeout_seconds: float = 30.0) -> int:
        """The id of the broker that leads a partition; while there is none, it is waited for. What
        a broker knows of a leader that has just died may be old."""

        async def work(cluster: Cluster) -> int:
            await check_topic(cluster, topic)
            await cluster.partition(topic, partition)
            return await cluster.retrying(lambda: cluster.leader(topic, partition))

        return self._ask(f"find the leader of {topic}-{partition}", work, timeout_seconds)

    def wait_in_sync(self, topic: str | None = None, *, timeout_seconds: float = 30.0) -> None:
        """Return when every replica of a topic, or of all topics, is in sync and on a broker that
        runs, and every running broker knows. Raises ClusterError that names what is behind."""
        if topic is not None:
            named = topic
            self._ask(f"wait for {named!r}", lambda cluster: check_topic(cluster, named))
        until = time.monotonic() + timeout_seconds
        while late := self._late(topic):
            if time.monotonic() >= until:
                more = [f"and {len(late) - SHOWN} more"] if len(late) > SHOWN else []
                raise ClusterError(
                    f"Not in sync after {timeout_seconds:g} seconds: "
                    f"{'; '.join(late[:SHOWN] + more)}."
                )
            time.sleep(ASK_AGAIN_SECONDS)

    def _late(self, topic: str | None) -> list[str]:
        nodes = self._running().serving
        serving = [node.plan.broker_id for node in nodes]
        for node in nodes:

            async def work(cluster: Cluster) -> list[str]:
                return await behind(cluster, topic, serving)

            try:
                found = ask("ask a broker", _address(node), work, ANSWER_SECONDS, self.security)
            except ClusterError as fault:
                found = [f"{node.name} does not answer: {fault}"]
            if found:
                return found
        return []

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
        """Delete a topic and its records; returns when no broker that answers shows it any more,
        a second later at most. Raises ClusterError with the controller's sentence."""
        from anabranch.client import admin

        async def work(cluster: Cluster) -> None:
            await check_topic(cluster, name)
            await admin.delete_topic(cluster, name)

        self._ask(f"delete topic {name!r}", work)
        until = time.monotonic() + UNKNOWN_TOPIC_SECONDS
        for node in self._running().serving:
            while (left := until - time.monotonic()) > 0 and _shows(
                node, name, left, self.security
            ):
                time.sleep(ASK_AGAIN_SECONDS)

    def topics(self) -> list[str]:
        """The topics there are, those that brokers keep for themselves left out."""

        async def work(cluster: Cluster) -> list[str]:
            found = (await cluster.metadata(None)).topics
            return sorted(each.name or "" for each in found if not each.is_internal)

        return self._ask("list topics", work)

    # Inside.

    def _plans(self, folder: str) -> list[NodePlan]:
        """What each broker is started with: one has the folder for itself, several share it."""
        count = len(self._racks)
        ports = free_ports(2 * count) if count > 1 else [0, 0]
        clients = [self._port + each if self._port else ports[each] for each in range(count)]
        controllers = ports[count:]
        common = diskless_settings(folder)
        if count > 1:
            servers = ",".join(f"127.0.0.1:{each}" for each in controllers)
            common["controller.quorum.bootstrap.servers"] = servers
        if count > 1 or self._metadata_store != SQLITE:
            url = f"sqlite://{folder}/metadata-store.db"
            is_file = self._metadata_store == SQLITE
            common["metadata.store.url"] = url if is_file else self._metadata_store
        return [
            self._plan(index + 1, folder, clients, controllers, common) for index in range(count)
        ]

    def _plan(
        self, broker_id: int, folder: str, clients: list[int], controllers: list[int],
        common: Mapping[str, str],
    ) -> NodePlan:  # fmt: skip
        rack = self._racks[broker_id - 1]
        own = folder if len(clients) == 1 else f"{folder}/broker-{broker_id}"
        settings = {"node.id": str(broker_id), "log.dirs": own, **common}
        if rack is not None:
            settings["broker.rack"] = rack
        if self.security is not None:
            settings |= self.security.node_settings()
            settings["listeners"] = self.security.listeners(
                clients[broker_id - 1], controllers[broker_id - 1]
            )
        settings |= self.config | self._broker_config.get(broker_id, {})
        peers = {
            port: each
            for each in range(1, len(clients) + 1)
            for port in (clients[each - 1], controllers[each - 1])
            if each != broker_id
        }
        return NodePlan(
            broker_id=broker_id, rack=settings.get("broker.rack"), port=clients[broker_id - 1],
            folder=settings["log.dirs"].split(",")[0], controller_port=controllers[broker_id - 1],
            settings=settings, peers=peers, controllers=frozenset(controllers),
        )  # fmt: skip

    def _running(self) -> RunningCluster:
        if self._cluster is None:
            raise ClusterError("The cluster is not running: use it within `with`, or call start().")
        return self._cluster

    def _ask(
        self, what: str, work: Callable[[Cluster], Awaitable[T]], timeout_seconds: float = 30.0
    ) -> T:
        nodes = self._running().serving
        return ask(what, ",".join(map(_address, nodes)), work, timeout_seconds, self.security)


async def _on_a_thread(work: Callable[[], T]) -> T:
    """Run `work` to its end even if the task is cancelled meanwhile, since its thread goes on: who
    went on without it would leave a cluster behind."""
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as fault:
            cancelled = fault
    if cancelled is not None:
        running.exception()
        raise cancelled
    return running.result()


def _for_several(brokers: int) -> dict[str, object]:
    """What more brokers than one are for, unless the test says otherwise."""
    replicas = min(USUAL_REPLICAS, brokers)
    return {"default.replication.factor": replicas, "min.insync.replicas": max(1, replicas - 1)}


def _checked(folder: str) -> str:
    """The folder; raises ClusterError where a node would take it for others."""
    if "," in folder or folder != folder.strip():
        raise ClusterError(
            f"The folder {folder!r} cannot be used: log.dirs, where nodes have it, separates "
            "folders by commas and drops spaces around them."
        )
    return folder


def _check_names(settings: Mapping[str, object]) -> None:
    """Refuse what is no setting: a node goes on with a warning, which a test would not see."""
    from anabranch.core.settings.catalogue import ALIASES
    from anabranch.server.properties import is_known, nearest

    for name in settings:
        if not is_known(name) and name not in ALIASES:
            raise ClusterError(f"{name!r} is not a setting of brokers{nearest(name)}")


def _described(node: ClusterNode) -> LocalBroker:
    return LocalBroker(node.plan.broker_id, node.plan.rack, HOST, node.port, node.plan.folder)


def _address(node: ClusterNode) -> str:
    return f"{HOST}:{node.port}"


def _shows(
    node: ClusterNode, topic: str, timeout_seconds: float, security: ClusterSecurity | None
) -> bool:
    """Whether a broker says that there is a topic; one that does not answer says nothing."""

    async def work(cluster: Cluster) -> bool:
        return any(each.name == topic for each in (await cluster.metadata(None)).topics)

    try:
        return ask("ask a broker", _address(node), work, timeout_seconds, security)
    except ClusterError:
        return False


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as a properties file has them; those that are None are left out."""
    return {name: _text(each) for name, each in settings.items() if each is not None}


def _text(setting: object) -> str:
    if isinstance(setting, bool):
        return "true" if setting else "false"
    if isinstance(setting, list | tuple | set | frozenset):
        return ",".join(map(_text, setting))
    return str(setting)
