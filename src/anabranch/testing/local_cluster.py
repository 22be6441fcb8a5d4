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
import logging
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.server.node import Node

T = TypeVar("T")

LINES_KEPT = 2_000
"""Lines of the nodes' log that are kept for a failing test."""
JOIN_SECONDS = 20
"""How long `stop` waits for the thread before it says that something hangs."""

FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
}
"""Settings in which a test cluster differs from a production one, unless the test says otherwise:
a first consumer waits for nobody, sessions may be short, cleaning and retention run often."""


class ClusterError(RuntimeError):
    """The cluster cannot do that; the text says why and what to do."""


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

    `config` are settings of every broker by Kafka's names (values of any type, `True` as true);
    they go over `FOR_TESTS`. `racks` gives each broker one. `folder` keeps the data somewhere; by
    default it is temporary and removed by `stop`. `port` is the first broker's, 0 a free one.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        folder: str | None = None,
        port: int = 0,
        start_timeout_seconds: float = 20.0,
    ) -> None:
        if brokers != 1:
            raise ClusterError(f"LocalCluster runs one broker, not {brokers}: leave `brokers` out.")
        if racks is not None and len(racks) != brokers:
            raise ClusterError(f"{len(racks)} racks do not fit {brokers} broker(s): one for each.")
        self.config = {**FOR_TESTS, **{name: _text(each) for name, each in (config or {}).items()}}
        self._racks = list(racks) if racks is not None else [None] * brokers
        self._folder = folder
        self._port = port
        self._start_timeout_seconds = start_timeout_seconds
        self._run: _Run | None = None
        self._last_log = ""

    # Starting and stopping.

    def start(self) -> Self:
        """Start the cluster; returns when clients are served. Raises ClusterError."""
        if self._run is not None:
            raise ClusterError("The cluster is running already.")
        run = _Run(self._settings, self._folder)
        try:
            run.start(self._start_timeout_seconds)
        except BaseException:
            self._last_log = run.lines.text
            raise
        self._run = run
        return self

    def stop(self) -> None:
        """Stop the cluster and remove its temporary folder; may be called again."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()
            self._last_log = run.lines.text

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
        where = self.bootstrap_servers if self._run is not None else "stopped"
        return f"<LocalCluster {where}>"

    # What is there.

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: `host:port` of every broker, with commas between them."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    @property
    def brokers(self) -> list[LocalBroker]:
        """The brokers, by id."""
        node = self._running().node
        host, _, port = node.bootstrap_servers.rpartition(":")
        folder = node.config.log_dirs[0]
        rack = node.config.rack
        return [LocalBroker(node.config.node_id, rack, host, int(port), folder)]

    @property
    def cluster_id(self) -> str:
        """The id of the cluster: a new one for each temporary folder."""
        return self._running().node.cluster_id

    @property
    def log(self) -> str:
        """What the nodes have logged, the newest lines last; also after `stop`."""
        return self._last_log if self._run is None else self._run.lines.text

    def statistics(self) -> dict[str, Any]:
        """Counts of each broker, by id: partitions, groups, connections."""
        run = self._running()
        return run.call(_statistics(run.node))

    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; raises ClusterError with the controller's sentence."""
        from anabranch.client import admin

        settings = {key: _text(each) for key, each in (config or {}).items()}
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

        found: list[str] = self._ask("list topics", work)
        return found

    # Inside.

    def _settings(self, folder: str) -> dict[str, str]:
        settings = {
            "log.dirs": folder,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:0",
            **self.config,
        }
        rack = self._racks[0]
        return settings if rack is None else {"broker.rack": rack, **settings}

    def _running(self) -> _Run:
        if self._run is None:
            raise ClusterError("The cluster is not running: use it within `with`, or call start().")
        return self._run

    def _ask(self, what: str, work: Any) -> Any:
        from anabranch.client.cluster import Cluster
        from anabranch.core.errors import ApiError

        async def run() -> Any:
            async with Cluster(self.bootstrap_servers) as cluster:
                return await work(cluster)

        try:
            return self._running().call(run())
        except ApiError as fault:
            raise ClusterError(f"Cannot {what}: {fault.message} ({fault.code.name})") from fault


class _Run:
    """One life of a cluster: its thread, its folder, its node."""

    def __init__(self, settings: Any, folder: str | None) -> None:
        self.lines = _Lines()
        self.node: Node = None  # type: ignore[assignment]
        self._settings = settings
        self._temporary = folder is None
        self._folder = tempfile.mkdtemp(prefix="anabranch-") if folder is None else folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._fault: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="anabranch-cluster", daemon=True)

    def start(self, timeout_seconds: float) -> None:
        """Start the thread and wait until the node serves; raises ClusterError."""
        self._thread.start()
        is_there = self._started.wait(timeout_seconds)
        if is_there and self._fault is None:
            return
        fault = self._fault
        why = f"{fault}" if is_there else f"it did not within {timeout_seconds:g} seconds"
        self.stop()
        raise ClusterError(f"The cluster did not start: {why}") from fault

    def stop(self) -> None:
        """End the node, the thread and the folder."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            raise ClusterError(f"The cluster did not stop within {JOIN_SECONDS} seconds.")
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and wait for it."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _main(self) -> None:
        try:
            with self.lines:
                self._serve_until_stopped()
        except BaseException as fault:
            self._fault = fault
        finally:
            self._started.set()

    def _serve_until_stopped(self) -> None:
        from anabranch.server.main import new_loop

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        from anabranch.server.config import load_config
        from anabranch.server.node import Node

        texts = [f"{name}={text}" for name, text in self._settings(self._folder).items()]
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        node = self.node = Node(load_config(None, texts))
        await node.start()
        self._started.set()
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((stopping, node.stopped), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await node.stop()


class _Lines(logging.Handler):
    """Keeps what the nodes of one cluster log: the events of its thread."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[logging.LogRecord] = deque(maxlen=LINES_KEPT)
        self._thread_id = 0
        self._level = logging.NOTSET

    @property
    def text(self) -> str:
        """The lines, the newest one last."""
        from anabranch.server.logs import TextLines

        form = TextLines()
        return "\n".join(form.format(record) for record in tuple(self._kept))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event of ours."""
        if record.thread == self._thread_id:
            self._kept.append(record)

    def __enter__(self) -> Self:
        root = logging.getLogger("anabranch")
        self._thread_id = threading.get_ident()
        self._level = root.level
        if not root.isEnabledFor(logging.INFO):
            root.setLevel(logging.INFO)
        root.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        root = logging.getLogger("anabranch")
        root.removeHandler(self)
        if not any(isinstance(each, _Lines) for each in root.handlers):
            root.setLevel(self._level)


async def _statistics(node: Node) -> dict[str, Any]:
    assert node.broker is not None
    return {
        str(node.config.node_id): {
            "partitions": node.broker.partitions.statistics(),
            "groups": node.broker.broker.groups.statistics(),
            "listeners": {each.name: each.statistics() for each in node.acceptors},
        }
    }


def _text(setting: object) -> str:
    if isinstance(setting, bool):
        return "true" if setting else "false"
    return str(setting)
