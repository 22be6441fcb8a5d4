"""Which log is compacted, when, and the swap at the end.

What: up to `log.cleaner.threads` passes at a time, each over the log with the largest dirty part of
those that its topic's settings want compacted; a process of its own reads and writes
(`cleaner_worker.py`), the loop only swaps. Why: `core.log.cleaner` decides, this acts.

Rules kept: a log that changed under a pass (deleted, cut, offline) makes the pass worthless, never
the log; a log whose bytes cannot be read is left alone from then on, said once and counted, and
the others go on; nothing is compacted whose offsets the recovery point does not cover.
Not here: retention (`upkeep.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log import cleaner, compaction, segment_swap
from anabranch.core.log.files import ColdRead, DiskFull, Files
from anabranch.core.types import TopicPartition
from anabranch.server.cleaner_process import PassFailed, Worker, WorkerGone
from anabranch.server.cleaner_worker import BUG, CORRUPT, FULL, STORAGE, Order
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.restarts import restarted

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.log.log import Log
    from anabranch.core.log.segment import Segment
    from anabranch.core.replication.replica import Replica
    from anabranch.server.partitions import PartitionShell

LOG = logger("cleaner")
_T = TypeVar("_T")

LEAST_BACKOFF_S = 0.01
"""`log.cleaner.backoff.ms` may be 0; the loop has more to do than to look for work."""
LOOK_S = 0.1
"""How often it is looked whether the log of a running pass is still as it was."""
IDLE_MS = 10_000
"""A worker that had nothing to do for so long gives its memory back."""
SLICE_LOGS = 200
"""Logs that are weighed before others get the loop."""


class Candidate(NamedTuple):
    """A log that is worth a pass."""

    replica: Replica
    found: compaction.Dirt


class Cleaner:
    """The compaction of one broker's logs."""

    def __init__(
        self,
        broker: Broker,
        shell: PartitionShell,
        files: Files,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self.uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        """Logs that are left alone, and why."""
        self.max_dirty_percent = 0
        self.read_bytes_total = self.written_bytes_total = self.passes_total = 0
        self.recopy_percent = self.pass_seconds = 0.0
        self.looked_ms = steady_ms()
        self._broker = broker
        self._shell = shell
        self._files = files
        self._clock_ms = clock_ms
        self._task: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], TopicPartition] = {}
        self._resting: dict[TopicPartition, int] = {}
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
        self._threads.shutdown()

    def abandon(self) -> None:
        """End the threads and processes, and write nothing: see `Node.abandon`."""
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.rest()

    def is_cleaning(self, place: TopicPartition) -> bool:
        """Whether a pass reads a log's segments: retention leaves them to the next time."""
        return place in self._running.values()

    # Choosing.

    async def _run(self) -> None:
        while True:
            config = self._broker.config
            backoff_s = max(LEAST_BACKOFF_S, config.log_cleaner_backoff_ms / 1000)
            room = config.log_cleaner_threads - len(self._running)
            chosen = (await self._dirtiest())[: max(0, room)]
            for candidate in chosen:
                self._begin(candidate)
            if not chosen:
                self._let_rest()
            if self._running:
                await asyncio.wait(
                    self._running, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                await asyncio.sleep(backoff_s)

    async def _dirtiest(self) -> list[Candidate]:
        """The logs that want a pass, the dirtiest first."""
        self.looked_ms = now_ms = steady_ms()
        self._resting = {key: due for key, due in self._resting.items() if due > now_ms}
        self._forget_uncleanable()
        found = []
        for number, replica in enumerate(list(self._shell.hosting.logs.compacted.values())):
            if number % SLICE_LOGS == SLICE_LOGS - 1:
                await asyncio.sleep(0)
            dirt = self._dirt(replica)
            if dirt is not None and dirt.dirty_bytes:
                found.append((replica, replica.log, dirt))
        chosen, highest = cleaner.dirtiest(found)
        self.max_dirty_percent = int(100 * highest)
        return [Candidate(*each) for each in chosen]

    def _dirt(self, replica: Replica) -> compaction.Dirt | None:
        """What a pass could do; None for logs that have none now."""
        log, place = replica.log, replica.topic_partition
        if not cleaner.may_be_cleaned(log) or not self._shell.is_hosted(replica):
            return None
        if place in self.uncleanable or place in self._resting or self.is_cleaning(place):
            return None
        folder, high_watermark = self._shell.folders[replica.folder], replica.high_watermark
        now_ms = self._clock_ms()
        try:
            return cleaner.dirt_of(folder, place, log, now_ms=now_ms, high_watermark=high_watermark)
        except ColdRead as cold:
            self._threads.submit(cold.file.warm, cold.position, cold.length)
            return None  # by the next look it is in memory
        except StorageFault as fault:
            self._broker.faults.append((replica, fault))
            self._shell.take_faults()
            return None

    def _forget_uncleanable(self) -> None:
        """Logs that were deleted, and perhaps made anew under the same name."""
        for place, (log, _) in tuple(self.uncleanable.items()):
            replica = self._broker.partitions.get(*place)
            if replica is None or replica.log is not log:
                del self.uncleanable[place]

    # One pass.

    def _begin(self, candidate: Candidate) -> None:
        task = asyncio.get_running_loop().create_task(self._pass(candidate))
        self._running[task] = candidate.replica.topic_partition
        task.add_done_callback(lambda done: self._running.pop(done, None))

    async def _pass(self, candidate: Candidate) -> None:
        replica = candidate.replica
        worker = self._worker()
        try:
            await self._compact(replica, candidate.found, worker)
        except (segment_swap.Stale, WorkerGone) as gone:
            LOG.info("gave up compacting", partition=replica.topic_partition, why=str(gone))
            self._rest(replica)
        except PassFailed as failed:
            self._failed(replica, failed)
        except ColdRead as cold:
            await self._in_thread(cold.file.warm, cold.position, cold.length)
        except (CorruptLog, DiskFull) as fault:
            kind = FULL if isinstance(fault, DiskFull) else CORRUPT
            self._failed(replica, PassFailed(kind, str(fault)))
        except StorageFault as fault:
            self._failed(replica, PassFailed(STORAGE, str(fault)))
        except Exception as fault:  # else it would be tried again at once, for ever
            self._failed(replica, PassFailed(BUG, f"{type(fault).__name__}: {fault}"))
        finally:
            self._idle.append((steady_ms(), worker))

    async def _compact(self, replica: Replica, found: compaction.Dirt, worker: Worker) -> None:
        log, config = replica.log, self._broker.config
        share = max(1, config.log_cleaner_threads)
        map_bytes = config.log_cleaner_dedupe_buffer_size // share
        job = compaction.job(
            log,
            found,
            now_ms=self._clock_ms(),
            map_bytes=int(map_bytes * config.log_cleaner_io_buffer_load_factor),
            io_bytes=config.log_cleaner_io_buffer_size // share,
        )
        before = log.segments[: len(job.segments)]
        begun_ms = steady_ms()
        rate = config.log_cleaner_io_max_bytes_per_second / share
        try:
            outcome = await self._outcome(replica, before, worker, Order(job, rate))
            await self._install(replica, before, outcome)
        finally:
            await asyncio.shield(self._in_thread(cleaner.discard, self._files, log.folder))
        self._count(replica, outcome, (steady_ms() - begun_ms) / 1000)

    async def _outcome(
        self, replica: Replica, before: list[Segment], worker: Worker, order: Order
    ) -> compaction.Outcome:
        """Have the worker do a pass, as long as it is of use."""
        running: asyncio.Future[compaction.Outcome] = self._in_thread(worker.run, order)
        try:
            while not (await asyncio.wait([running], timeout=LOOK_S))[0]:
                self._check(replica, before)
            self._check(replica, before)
            return await running
        finally:
            if not running.done():
                worker.kill()
                await asyncio.gather(running, return_exceptions=True)

    def _check(self, replica: Replica, before: list[Segment]) -> None:
        cleaner.check(replica.log, before, is_hosted=self._shell.is_hosted(replica))

    async def _install(
        self, replica: Replica, before: list[Segment], outcome: compaction.Outcome
    ) -> None:
        """Put what a pass has made in place, one pass at a time."""
        steps = cleaner.install(
            self._shell.folders[replica.folder],
            replica.log,
            before,
            outcome,
            is_hosted=partial(self._shell.is_hosted, replica),
            clock_ms=self._clock_ms,
        )
        async with self._installing:
            held = -1
            try:
                for step in steps:
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

    # What came of it.

    def _failed(self, replica: Replica, failed: PassFailed) -> None:
        place, why = replica.topic_partition, str(failed)
        if not self._shell.is_hosted(replica):
            return  # deleted meanwhile, and its files with it
        if failed.kind == FULL:
            LOG.warning("a log was not compacted: the disk is full", partition=place, why=why)
            self._rest(replica)
        elif failed.kind == STORAGE:
            self._shell.folder_failed(replica.folder, StorageFault(why))
        else:
            LOG.error("a log is no longer compacted", partition=place, why=why)
            self.uncleanable[place] = (replica.log, why)

    def _rest(self, replica: Replica) -> None:
        """Leave a log alone for a while: what was in the way may be gone then."""
        backoff_ms = max(int(1000 * LEAST_BACKOFF_S), self._broker.config.log_cleaner_backoff_ms)
        self._resting[replica.topic_partition] = steady_ms() + backoff_ms

    def _count(self, replica: Replica, outcome: compaction.Outcome, seconds: float) -> None:
        self.passes_total += 1
        self.read_bytes_total += outcome.read_bytes
        self.written_bytes_total += outcome.written_bytes
        self.recopy_percent = 100 * outcome.written_bytes / max(1, outcome.read_bytes)
        self.pass_seconds = seconds
        LOG.info(
            "compacted",
            partition=replica.topic_partition,
            upto=outcome.upto,
            read_bytes=outcome.read_bytes,
            written_bytes=outcome.written_bytes,
            kept_records=outcome.kept_records,
            seconds=round(seconds, 3),
        )

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

    def statistics(self) -> dict[str, float]:
        """Figures for metrics."""
        sizes = [log.size_bytes for log, _ in self.uncleanable.values()]
        return {
            "max_dirty_percent": self.max_dirty_percent,
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
        return -1  # it is gone already; whoever needs it says so
