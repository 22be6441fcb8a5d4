"""Compaction of one broker's logs: performs the passes that the core decides on.

What: looks for work every `log.cleaner.backoff.ms`, and when a pass has ended. A process of its own
reads and writes (`cleaner_worker.py`), the loop only exchanges segments. Rules kept: of what a pass
does on a disk nothing holds the loop up; one pass at a time exchanges segments. Nothing is decided
here. Not here: which log, and what follows from a pass (`core/broker/hosting/log_cleaner.py`),
retention (`upkeep.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from anabranch.core.errors import StorageFault
from anabranch.core.log import compaction
from anabranch.core.log.cleaner import PassEnd, end_of
from anabranch.core.log.files import ColdRead
from anabranch.server.cleaner_process import PassFailed, Worker
from anabranch.server.cleaner_worker import Order
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.restarts import restarted

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.broker.hosting.log_cleaner import Pass
    from anabranch.server.partitions import PartitionShell

LOG = logger("cleaner")
_T = TypeVar("_T")

LOOK_S = 0.1
"""How often it is looked whether the log of a running pass is still as it was."""
IDLE_MS = 10_000
"""A worker that had nothing to do for so long gives its memory back."""


class Share(NamedTuple):
    """What one of the broker's passes may use."""

    map_bytes: int
    io_bytes: int
    bytes_per_second: float


class Cleaner:
    """The passes of one broker, and the processes that make them."""

    def __init__(
        self, broker: Broker, shell: PartitionShell, *, clock_ms: Callable[[], int]
    ) -> None:
        self.read_bytes_total = self.written_bytes_total = self.passes_total = 0
        self.recopy_percent = self.pass_seconds = 0.0
        self.looked_ms = steady_ms()
        self.machine = shell.hosting.cleaner
        self._broker = broker
        self._shell = shell
        self._clock_ms = clock_ms
        self._task: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._idle: list[tuple[int, Worker]] = []
        self._workers: list[Worker] = []
        self._installing = asyncio.Lock()
        self._threads = ThreadPoolExecutor(thread_name_prefix="cleaner")

    def start(self) -> None:
        """Begin to compact, unless `log.cleaner.enable` says no."""
        if self._broker.config.log_cleaner_enable:
            self._task = asyncio.get_running_loop().create_task(
                restarted(self._run, "compaction", LOG)
            )

    async def stop(self) -> None:
        """Give up what runs; what it made is removed now or when its log is opened."""
        tasks = [*self._running, *filter(None, [self._task])]
        for worker in self._workers:
            worker.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self._workers:
            worker.rest()
        await asyncio.to_thread(self._threads.shutdown)  # one of them may read a segment

    def abandon(self) -> None:
        """End the threads and processes, and write nothing: see `Node.abandon`."""
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.rest()

    # Looking for work.

    async def _run(self) -> None:
        while True:
            await self._look()
            begun = self.machine.take_passes()
            for each in begun:
                task = asyncio.get_running_loop().create_task(self._pass(each))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if not begun:
                self._let_rest()
            backoff_s = self.machine.backoff_ms / 1000
            if self._running:
                await asyncio.wait(
                    self._running, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await asyncio.sleep(backoff_s)

    async def _look(self) -> None:
        self.looked_ms = steady_ms()
        for cold in self.machine.look(self.looked_ms, self._clock_ms()):
            if self._broker.faults:
                self._shell.take_faults()
            if cold is None:
                await asyncio.sleep(0)
            else:
                self._threads.submit(cold.warm)
        if self._broker.faults:
            self._shell.take_faults()

    # One pass.

    async def _pass(self, begun: Pass) -> None:
        worker = self._worker()
        end, why = PassEnd.DONE, ""
        try:
            await self._compact(begun, worker)
        except Exception as fault:
            end, why = await self._end_of(fault)
            if end is PassEnd.BUG:
                tell_unexpected(fault, "a pass of the cleaner")
        finally:
            self._idle.append((steady_ms(), worker))
        self.machine.ended(begun, end, why, steady_ms())
        self._shell.perform()
        self._shell.tell_changed()

    async def _end_of(self, fault: Exception) -> tuple[PassEnd, str]:
        """How a pass ended that has met a fault, and why."""
        if isinstance(fault, PassFailed):
            return fault.end, str(fault)
        if isinstance(fault, ColdRead):
            try:
                await self._in_thread(fault.warm)
            except StorageFault as problem:
                fault = problem
        end = end_of(fault)
        return end, f"{type(fault).__name__}: {fault}" if end is PassEnd.BUG else str(fault)

    async def _compact(self, begun: Pass, worker: Worker) -> None:
        share = self._share()
        job = await self._job(begun, share)
        begun_ms = steady_ms()
        try:
            outcome = await self._outcome(begun, worker, Order(job, share.bytes_per_second))
            await self._install(begun, outcome)
        finally:
            await asyncio.shield(self._in_thread(begun.discard))
        self._count(begun, outcome, (steady_ms() - begun_ms) / 1000)

    async def _job(self, begun: Pass, share: Share) -> compaction.Job:
        """What a pass is to do. Each segment that lacks an index is read in a thread first."""
        while True:
            try:
                return begun.job(
                    now_ms=self._clock_ms(), map_bytes=share.map_bytes, io_bytes=share.io_bytes,
                    blocking=False,
                )  # fmt: skip
            except ColdRead as cold:
                await self._in_thread(cold.warm)

    def _share(self) -> Share:
        """Of what the settings give to all passes together."""
        config = self._broker.config
        passes = max(1, config.log_cleaner_threads)
        map_bytes = config.log_cleaner_dedupe_buffer_size // passes
        filled = min(1.0, config.log_cleaner_io_buffer_load_factor)  # Kafka takes any number
        return Share(
            map_bytes=int(map_bytes * filled),
            io_bytes=config.log_cleaner_io_buffer_size // passes,
            bytes_per_second=config.log_cleaner_io_max_bytes_per_second / passes,
        )

    async def _outcome(self, begun: Pass, worker: Worker, order: Order) -> compaction.Outcome:
        """Have the worker do a pass, as long as it is of use."""
        running: asyncio.Future[compaction.Outcome] = self._in_thread(worker.run, order)
        try:
            while not (await asyncio.wait([running], timeout=LOOK_S))[0]:
                begun.check()
            begun.check()
            return await running
        finally:
            if not running.done():
                worker.kill()
            await asyncio.gather(running, return_exceptions=True)  # also when nobody waits for it

    async def _install(self, begun: Pass, outcome: compaction.Outcome) -> None:
        """Put what a pass has made in place, one pass at a time."""
        async with self._installing:
            held = -1
            try:
                for step in begun.install(outcome, self._clock_ms):
                    self._let_go(held)
                    held = -1
                    await self._in_thread(step.call)
                    held = _opened(step.hold) if step.hold else -1
            finally:
                self._let_go(held)

    def _let_go(self, held: int) -> None:
        """Let a thread give back the space of a file that was replaced: a large one takes long."""
        if held >= 0:
            self._threads.submit(os.close, held)

    def _in_thread(self, call: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments))

    def _worker(self) -> Worker:
        if self._idle:
            return self._idle.pop()[1]
        worker = Worker()
        self._workers.append(worker)
        return worker

    def _let_rest(self) -> None:
        for since_ms, worker in self._idle:
            if worker.is_running and steady_ms() - since_ms >= IDLE_MS:
                worker.rest()

    # Figures.

    def _count(self, begun: Pass, outcome: compaction.Outcome, seconds: float) -> None:
        self.passes_total += 1
        self.read_bytes_total += outcome.read_bytes
        self.written_bytes_total += outcome.written_bytes
        self.recopy_percent = 100 * outcome.written_bytes / max(1, outcome.read_bytes)
        self.pass_seconds = seconds
        LOG.info(
            "compacted",
            partition=begun.place,
            upto=outcome.upto,
            read_bytes=outcome.read_bytes,
            written_bytes=outcome.written_bytes,
            kept_records=outcome.kept_records,
            seconds=round(seconds, 3),
        )

    def statistics(self) -> dict[str, float]:
        """Figures for metrics."""
        sizes = [log.size_bytes for log, _ in self.machine.uncleanable.values()]
        return {
            "max_dirty_percent": int(100 * self.machine.max_dirty_ratio),
            "uncleanable": len(sizes),
            "uncleanable_bytes": sum(sizes),
            "since_last_look_ms": steady_ms() - self.looked_ms,
            "recopy_percent": self.recopy_percent,
            "pass_seconds": self.pass_seconds,
            "passes_total": self.passes_total,
            "read_bytes_total": self.read_bytes_total,
            "written_bytes_total": self.written_bytes_total,
        }


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1  # it is gone already; the next step says so
