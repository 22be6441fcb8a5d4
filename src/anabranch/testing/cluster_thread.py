"""One life of a cluster: its thread, its event loop, its folder, its nodes.

What: `start` returns when clients are served, `call` runs a coroutine over there, `stop` ends all
of it. Rules kept: whatever happens while it starts or runs, `stop` leaves no thread, socket or
temporary folder; what goes wrong is a `ClusterError` with a sentence, and has the fault behind it
only where that is a bug of ours. Not here: what users of a cluster call (`local_cluster.py`).
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.testing.cluster_log import ClusterLog

if TYPE_CHECKING:
    from anabranch.core.settings.listeners import Listener
    from anabranch.server.config import NodeConfig
    from anabranch.server.node import Node

T = TypeVar("T")

STOP_SECONDS = 20.0
"""How long `stop` waits for the thread before it says that something hangs."""
LOOK_SECONDS = 0.5
"""How often a waiting `call` looks whether the cluster is still there."""


class ClusterError(RuntimeError):
    """The cluster cannot do that; the text says why and what to do."""


class ClusterThread:
    """Runs the nodes of a cluster; the settings of each are asked for with the folder to use."""

    def __init__(
        self, settings: Callable[[str], Sequence[Mapping[str, str]]], folder: str | None
    ) -> None:
        self.log = ClusterLog()
        self._settings = settings
        self._temporary = temporary_folder() if folder is None else None
        self._folder = self._temporary.name if self._temporary is not None else str(folder)
        self.nodes: dict[int, Node] = {}
        """By id, those that were stopped too; complete once `start` has returned."""
        self._stopped: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._is_to_end = threading.Event()
        self._started = threading.Event()
        self._fault: BaseException | None = None
        self._ended_because = "it was stopped"
        self._changed: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._main, name="anabranch-cluster", daemon=True)

    @property
    def running(self) -> list[Node]:
        """The nodes that were not stopped, by id."""
        return [node for broker_id, node in self.nodes.items() if broker_id not in self._stopped]

    def start(self, timeout_seconds: float) -> None:
        """Start, and wait until clients are served. Raises ClusterError; nothing is left then."""
        try:
            self._thread.start()
            in_time = self._started.wait(timeout_seconds)
        except BaseException:
            self.stop()
            raise
        if in_time and self._fault is None:
            return
        fault = self._fault
        self.stop()
        if fault is None:
            raise ClusterError(
                f"The cluster did not start within {timeout_seconds:g} seconds; where the machine "
                "is slow, give it more with start_timeout_seconds."
            )
        raise ClusterError(f"The cluster did not start: {_said(fault)}") from _cause(fault)

    def stop(self) -> None:
        """End the node, the thread and the temporary folder. Raises ClusterError if that fails."""
        self._is_to_end.set()
        if self._loop is not None and self._end is not None:
            _tell(self._loop, self._end.set)
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        is_stuck = self._thread.is_alive()
        if self._temporary is not None:
            self._temporary.cleanup()
        if is_stuck:
            raise ClusterError(f"The cluster did not stop within {STOP_SECONDS:g} seconds.")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and wait for it; raises ClusterError where the
        cluster has ended."""
        assert self._loop is not None
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise self._gone() from None
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except CancelledError:
                raise self._gone() from None
            except TimeoutError:
                if future.done():
                    return future.result()
                if not self._thread.is_alive():
                    work.close()
                    raise self._gone() from None

    def _gone(self) -> ClusterError:
        return ClusterError(f"The cluster has ended: {self._ended_because}")

    # On the thread.

    def _main(self) -> None:
        from anabranch.server.main import new_loop

        try:
            with self.log, asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._serve())
        except BaseException as fault:
            self._fault = fault
            self._ended_because = _said(fault)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        if self._is_to_end.is_set():
            return
        ending = asyncio.ensure_future(self._end.wait())
        try:
            if await _first(self._start_nodes(), ending):
                self._started.set()
                await self._until_one_ends(ending)
        finally:
            ending.cancel()
            for node in reversed(self.running):
                await node.stop()

    async def _start_nodes(self) -> None:
        """Start all of them at once: the first to take the lease lets the others in."""
        from anabranch.server.node import Node

        for settings in self._settings(self._folder):
            config = _config(settings)
            self.nodes[config.node_id] = Node(config)
        begun = [asyncio.ensure_future(node.start()) for node in self.nodes.values()]
        try:
            await asyncio.gather(*begun)
        finally:
            for each in begun:
                each.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def _until_one_ends(self, ending: asyncio.Future[Any]) -> None:
        """Wait for the end, or for a node that ends without having been told to."""
        while not ending.done():
            watched = {node.stopped: broker_id for broker_id, node in self.nodes.items()}
            watched = {each: it for each, it in watched.items() if it not in self._stopped}
            self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait(
                (ending, self._changed, *watched), return_when=asyncio.FIRST_COMPLETED
            )
            ended = [
                each for each, it in watched.items() if each.done() and it not in self._stopped
            ]
            if ended:
                self._ended_because = ended[0].result()
                return

    async def stop_node(self, broker_id: int) -> None:
        """Stop one node in order."""
        self._stopped.add(broker_id)
        self._look_again()
        await self.nodes[broker_id].stop()

    async def start_node(self, broker_id: int) -> None:
        """Start a stopped node again, with its folder and at its address."""
        from anabranch.server.node import Node

        self.nodes[broker_id] = Node(_at_its_ports(self.nodes[broker_id]))
        await self.nodes[broker_id].start()
        self._stopped.discard(broker_id)
        self._look_again()

    def _look_again(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def _config(settings: Mapping[str, str]) -> NodeConfig:
    """The configuration of a node; what is odd about it is logged."""
    from anabranch.server.config import load_config
    from anabranch.server.logs import logger

    config = load_config(None, [f"{name}={text}" for name, text in settings.items()])
    for warning in config.warnings:
        logger("main").warning(warning)
    return config


def _at_its_ports(node: Node) -> NodeConfig:
    """The configuration of a node that was started, with the ports that it got."""
    from msgspec.structs import replace

    def bound(listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        return tuple(replace(each, port=node.port_of(each)) for each in listeners)

    config = node.config
    return replace(
        config,
        listeners=bound(config.listeners),
        advertised_listeners=bound(config.advertised_listeners),
    )


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is gone with the process at the latest, whatever a test forgets."""
    return tempfile.TemporaryDirectory(prefix="anabranch-", ignore_cleanup_errors=True)


async def _first(work: Coroutine[Any, Any, None], other: asyncio.Future[Any]) -> bool:
    """Whether `work` ended before `other`; it is cancelled if not, and its faults are raised."""
    working = asyncio.ensure_future(work)
    await asyncio.wait((working, other), return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        await asyncio.wait((working,))
        return False
    await working
    return True


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        return  # the loop has ended by itself


def _said(fault: BaseException) -> str:
    """A fault as one line; a bug with its class, which may be all there is."""
    text = " ".join(str(fault).split())
    return text if _cause(fault) is None else f"{type(fault).__name__}: {text}"


def _cause(fault: BaseException) -> BaseException | None:
    """What to show behind the sentence: nothing where the sentence says it all."""
    from anabranch.core.errors import ApiError, StorageFault
    from anabranch.server.config import ConfigError

    return None if isinstance(fault, ApiError | StorageFault | ConfigError | OSError) else fault
