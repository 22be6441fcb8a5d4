"""What a broker does for its logs as time passes: checkpoints, retention, rolling, late flushes.

What: one task that wakes every second and performs what `core/broker/hosting` finds due; logs are
looked at some at a time, so that many do not delay other work. High watermarks are written a folder
at a time, where one moved, in a thread; then the folder is synced, whether anything was written or
not: the system says so where a volume is gone, or gave up after an error, though nothing is written
there. Deleted files are removed in a thread: a disk takes half a second to give a gigabyte back.
Rule kept: the loop is held for a few milliseconds at a time. Not here: what is due when, and
compaction (`cleaner.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import CleanLogs, RemoveDeleted, SaveHighWatermarks
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import ColdRead, DiskFull, Files
from anabranch.core.log.logs import Due, LogFolder
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.partitions import NOT_REMOVED
from anabranch.server.restarts import restarted

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition
    from anabranch.server.partitions import PartitionShell

LOG = logger("upkeep")
TICK_S = 1.0
"""How often the machine is asked what is due."""
LOOKED_AT_ONCE = 4_000
"""So many logs are looked at before others have their turn: a millisecond or two."""
SLICE_S = 0.005
"""How long retention may hold the loop at a time."""


class Upkeep:
    """The timers of one broker's logs."""

    def __init__(
        self,
        broker: Broker,
        shell: PartitionShell,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._shell = shell
        self._clock_ms = clock_ms
        self._ticking: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._writing: dict[LogFolder, asyncio.Task[None]] = {}
        self._removing: dict[LogFolder, asyncio.Task[None]] = {}
        self._is_stopping = False
        shell.performs(SaveHighWatermarks, self._begin_writing)
        shell.performs(CleanLogs, self._begin_cleaning)
        shell.performs(RemoveDeleted, self._begin_removing)

    def start(self) -> None:
        """Begin to write checkpoints, apply retention and remove deleted files."""
        self._ticking = asyncio.get_running_loop().create_task(
            restarted(self._tick, "the upkeep of logs", LOG)
        )

    def stop(self) -> None:
        """Do nothing more; the logs are closed next, with their checkpoints."""
        self._is_stopping = True
        others = (*self._writing.values(), *self._removing.values())
        for each in (self._ticking, self._cleaning, *others):
            if each is not None:
                each.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._shell.hosting.tick(steady_ms(), self._clock_ms())
            self._shell.run()
            self._shell.tell_changed()

    async def _some_at_a_time(self) -> AsyncIterator[list[Replica]]:
        """All replicas; while the loop saw to others, some may have been dropped."""
        replicas = list(self._broker.partitions)
        for start in range(0, len(replicas), LOOKED_AT_ONCE):
            await asyncio.sleep(0)
            yield replicas[start : start + LOOKED_AT_ONCE]

    def _begin_writing(self, effect: SaveHighWatermarks) -> None:
        """Unless the last time has not ended: a dying disk takes long."""
        folder = self._shell.folders[effect.path]
        if folder not in self._writing:
            task = asyncio.get_running_loop().create_task(self._write(folder))
            self._writing[folder] = task
            task.add_done_callback(lambda _: self._writing.pop(folder))

    async def _write(self, folder: LogFolder) -> None:
        try:
            try:
                await self._write_high_watermarks(folder)
            except DiskFull as fault:
                self._shell.refuse(folder.path, fault, "a checkpoint was not written")
            await asyncio.to_thread(folder.files.sync_dir, folder.path)
            folder.names_synced()
        except StorageFault as fault:
            self._shell.folder_failed(folder.path, fault)
        except Exception as fault:
            tell_unexpected(fault, "the upkeep of a folder")
            why = f"{type(fault).__name__}: {fault}"
            LOG.error("the upkeep of a folder failed", path=folder.path, why=why)

    async def _write_high_watermarks(self, folder: LogFolder) -> None:
        """Write those of a folder if one moved; on the loop, and anew, where the draft may not be
        kept."""
        offsets: dict[TopicPartition, int] = {}
        draft = folder.draft_high_watermarks(offsets)
        if not await self._gather(folder, offsets):
            folder.give_up(draft)
            return
        await asyncio.to_thread(folder.write_draft, draft)
        if folder.fault is None and not folder.adopt(draft):
            self._shell.checkpoint_high_watermarks(folder)

    async def _gather(self, folder: LogFolder, offsets: dict[TopicPartition, int]) -> bool:
        """Take up the high watermarks of a folder; True when they are not as they were written."""
        moved = False
        partitions, path = self._broker.partitions, folder.path
        unhosted = self._shell.hosting.unhosted_high_watermarks
        offsets.update(unhosted(folder))
        async for replicas in self._some_at_a_time():
            written = folder.written_high_watermarks
            for replica in replicas:
                place, high_watermark = replica.topic_partition, replica.high_watermark
                if replica.folder == path and partitions.get(*place) is replica:
                    offsets[place] = high_watermark
                    if written.get(place) != high_watermark:
                        moved = True
        others, written = unhosted(folder), folder.written_high_watermarks
        offsets.update(others)  # also of those that have just failed
        is_news = any(written.get(place) != others[place] for place in others)
        return moved or is_news or len(offsets) != len(written)

    def _begin_removing(self, effect: RemoveDeleted) -> None:
        """Unless the last time has not ended."""
        folder = self._shell.folders[effect.path]
        if folder in self._removing:
            return
        due = folder.take_due(self._clock_ms())
        if due.folders or due.files:
            task = asyncio.get_running_loop().create_task(self._remove(folder, due))
            self._removing[folder] = task
            task.add_done_callback(lambda _: self._removing.pop(folder))

    async def _remove(self, folder: LogFolder, due: Due) -> None:
        try:
            await asyncio.to_thread(self._remove_all, folder.files, due)
        except StorageFault as fault:
            self._shell.refuse(folder.path, fault, NOT_REMOVED)
            self._shell.tell_changed()

    def _remove_all(self, files: Files, due: Due) -> None:
        """Remove a file at a time, so that a node that stops does not wait for long: the next start
        removes the rest."""
        for path in due.folders:
            for name in files.list(path):
                if self._is_stopping:
                    return
                if not files.is_dir(f"{path}/{name}"):
                    files.remove(f"{path}/{name}")
            files.remove_tree(path)
        for path in due.files:
            if self._is_stopping:
                return
            files.remove(path)

    def _begin_cleaning(self, _effect: CleanLogs) -> None:
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = asyncio.get_running_loop().create_task(self.clean())

    async def clean(self) -> None:
        """Roll segments that are too old, apply retention, forget idle producers."""
        until = time.perf_counter() + SLICE_S
        for replica in list(self._broker.partitions):
            cold = self._clean_one(replica, self._clock_ms())
            if cold is not None:
                await asyncio.get_running_loop().run_in_executor(None, cold.warm)
                self._clean_one(replica, self._clock_ms())
            if time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S

    def _clean_one(self, replica: Replica, now_ms: int) -> ColdRead | None:
        cold = self._shell.hosting.clean_one(replica, now_ms)
        if self._broker.faults:
            self._shell.take_faults()
        return cold
