"""A node's life on a thread of this process, with an event loop of its own.

What: `ThreadLife` runs one node; `Threads` begins such lives and keeps what they log. A killed node
goes as the system would take it: its loop stops between two callbacks, its sockets are closed
without a goodbye, its files are not touched any more, its threads end. Rules kept: nothing that a
killed node had under way runs on, not even its `finally` clauses' writes; `end` leaves no thread.
Not here: a node that is stuck in a long computation cannot be taken off its thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from anabranch.testing.cluster_log import ClusterLog
from anabranch.testing.counts import statistics_of
from anabranch.testing.faults import NodeFaults
from anabranch.testing.nodes import ClusterError, Life, NodePlan, ServedNode

if TYPE_CHECKING:
    from anabranch.server.config import NodeConfig
    from anabranch.server.node import Node
    from anabranch.testing.faulty_files import FaultyFiles
    from anabranch.testing.faulty_loop import FaultyLoop

ANSWER_SECONDS = 5.0
CLOSINGS = 100
"""How often a coroutine may wait while it is being ended, until it is left as it is."""


class Killed(SystemExit):
    """Ends a loop on the spot: loops let it through, where they log other faults and go on."""


class Threads:
    """Begins lives on threads of this process."""

    def __init__(self) -> None:
        self._log = ClusterLog()

    def faults(self, _broker_id: int) -> NodeFaults:
        """A node's table."""
        return NodeFaults.private()

    def begin(self, plan: NodePlan, faults: NodeFaults) -> Life:
        """Start a thread; returns at once."""
        # Imported here once: nodes that start together would import in each other's way.
        importlib.import_module("anabranch.server.node")
        importlib.import_module("anabranch.testing.faulty_files")
        importlib.import_module("anabranch.testing.faulty_loop")
        return ThreadLife(plan, faults, self._log)

    @property
    def log(self) -> str:
        """The lines of all nodes, the newest ones last."""
        return self._log.text

    def close(self) -> None:
        """Nothing is held."""


class ThreadLife(Life):
    """One run of a node on a thread."""

    def __init__(self, plan: NodePlan, faults: NodeFaults, log: ClusterLog) -> None:
        self.node: Node | None = None
        self._plan = plan
        self._faults = faults
        self._log = log
        self._loop: FaultyLoop | None = None
        self._files: FaultyFiles | None = None
        self._end: asyncio.Event | None = None
        self._is_to_end = threading.Event()
        self._is_killed = False
        self._told = threading.Event()
        self._serving: ServedNode | None = None
        self._fault: BaseException | None = None
        self._why = "it was stopped"
        self._going_on = threading.Event()
        self._going_on.set()
        name = f"anabranch-broker-{plan.broker_id}"
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    # From the test's threads.

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait_serving(self, seconds: float) -> ServedNode | None:
        self._told.wait(seconds)
        if self._serving is None and self._told.is_set():
            self._thread.join(seconds)  # it is ending
        return self._serving

    def why_over(self) -> tuple[str, BaseException | None]:
        if self._fault is None:
            return self._why, None
        return _said(self._fault), _cause(self._fault)

    def end(self, seconds: float) -> bool:
        self._is_to_end.set()
        self._tell(lambda: self._end.set() if self._end is not None else None)
        self._thread.join(seconds)
        return self.is_over

    def strike(self) -> None:
        self._is_killed = True
        self._is_to_end.set()
        self._tell(self._die)
        self._going_on.set()

    def kill(self) -> None:
        if not self.is_over:
            self.strike()
            self._thread.join()

    def pause(self) -> None:
        stands = threading.Event()
        self._going_on.clear()

        def stand() -> None:
            stands.set()
            self._going_on.wait()
            self._die_if_killed()

        self._tell(stand)
        while not stands.wait(0.01) and not self.is_over:
            continue

    def resume(self) -> None:
        self._going_on.set()

    def statistics(self) -> dict[str, Any]:
        asked = threading.Event()
        found: dict[str, Any] = {}

        def ask() -> None:
            if self.node is not None and self.node.broker is not None:
                found.update(statistics_of(self.node))
            asked.set()

        self._tell(ask)
        if not asked.wait(ANSWER_SECONDS):
            raise ClusterError(f"Broker {self._plan.broker_id} does not answer; is it paused?")
        return found

    def _tell(self, what: Callable[[], None]) -> None:
        while self._loop is None and not self.is_over and not self._told.wait(0.001):
            continue  # it has only just begun
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what)

    def _die(self) -> None:
        raise Killed

    def _die_if_killed(self) -> None:
        if self._is_killed:
            raise Killed

    # On the thread.

    def _main(self) -> None:
        from anabranch.server.clocks import AHEAD_MS
        from anabranch.testing.faulty_files import FaultyFiles
        from anabranch.testing.faulty_loop import FaultyLoop

        AHEAD_MS.set(self._faults.cells)
        self._files = FaultyFiles(self._faults)
        plan = self._plan
        runner = asyncio.Runner(
            loop_factory=lambda: FaultyLoop(self._faults, plan.peers, plan.controllers)
        )
        try:
            with self._log.of_this_thread():
                try:
                    runner.run(self._serve())
                except Killed:
                    self._bury()
                    return
                runner.close()
        except BaseException as fault:
            self._fault = fault
            with contextlib.suppress(Exception):
                runner.close()
        finally:
            self._told.set()

    async def _serve(self) -> None:
        from anabranch.server.node import Node

        loop: Any = asyncio.get_running_loop()
        self._end, self._loop = asyncio.Event(), loop
        if self._is_to_end.is_set():
            return
        ending = asyncio.ensure_future(self._end.wait())
        try:
            self.node = Node(_config(self._plan), self._files)
            if await _first(self.node.start(), ending, self.node.stopped):
                port = int(self.node.bootstrap_servers.rpartition(":")[2])
                self._serving = ServedNode(self.node.cluster_id, port)
                self._told.set()
                await asyncio.wait((ending, self.node.stopped), return_when=asyncio.FIRST_COMPLETED)
            if self.node.stopped.done():
                self._why = self.node.stopped.result()
        finally:
            if not self._is_killed:
                ending.cancel()
                if self.node is not None:
                    await self.node.stop()

    def _bury(self) -> None:
        """Take what the system takes from a process that was killed."""
        loop, files = self._loop, self._files
        assert loop is not None and files is not None
        # Not before: a node that still ran would take it for its disk's fault, and say so.
        files.is_dead = True
        tasks = asyncio.all_tasks(loop)
        loop.set_exception_handler(lambda _loop, _context: None)
        # The loop closes the sockets of the dead, and warns of each, here, that nobody else has.
        warnings.filterwarnings("ignore", "unclosed resource", ResourceWarning, re.escape(__name__))
        # A stream that was being opened has no task to close it: it warns once it is collected.
        warnings.filterwarnings("ignore", "loop is closed", ResourceWarning, r"asyncio\.streams")
        loop.close()
        if self.node is not None:
            self.node.abandon()
        for executor in loop.executors:
            executor.shutdown(cancel_futures=True)
        for task in tasks:
            _end_silently(task)
        files.close_all()


def _end_silently(task: asyncio.Task[Any]) -> None:
    """Unwind what a dead node had under way, on a loop that is closed and files that refuse."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work: Any = task.get_coro()
    for _ in range(CLOSINGS):
        try:
            work.close()
        except BaseException:
            continue
        return


def _config(plan: NodePlan) -> NodeConfig:
    """The configuration of a node; what is odd about it is logged."""
    from anabranch.server.config import load_config
    from anabranch.server.logs import logger

    config = load_config(None, [f"{name}={text}" for name, text in plan.all_settings.items()])
    for warning in config.warnings:
        logger("main").warning(warning)
    return config


async def _first(work: Coroutine[Any, Any, None], *others: asyncio.Future[Any]) -> bool:
    """Whether `work` ended before others; it is cancelled if not, and its faults are raised."""
    working = asyncio.ensure_future(work)
    await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        working.cancel()
        await asyncio.wait((working,))
        return False
    await working
    return True


def _said(fault: BaseException) -> str:
    """A fault as one line; a bug with its class, which may be all there is."""
    text = " ".join(str(fault).split())
    return text if _cause(fault) is None else f"{type(fault).__name__}: {text}"


def _cause(fault: BaseException) -> BaseException | None:
    """What to show behind the sentence: nothing where the sentence says it all."""
    from anabranch.core.errors import ApiError, StorageFault
    from anabranch.server.config import ConfigError

    return None if isinstance(fault, ApiError | StorageFault | ConfigError | OSError) else fault
