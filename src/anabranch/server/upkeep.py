"""What a broker does for its logs as time passes: checkpoints, retention, rolling, late flushes.

What: one task that wakes every second and does what is due by the settings in force. Beside each
round of checkpoints, which write only what moved, every folder is synced in a thread: the system
says so where a volume is gone, or gave up after an error, though nobody writes there. Why apart
from `partitions.py`: that one follows the metadata, this one the clock. Rule kept: intervals are
measured with the steady clock, ages of records with the wall clock; the loop is held for a few
milliseconds at a time. Not here: compaction (`cleaner.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.errors import StorageFault
from anabranch.core.log.logs import LogFolder
from anabranch.server.clocks import steady_ms
from anabranch.server.lasting import lasting
from anabranch.server.logs import logger

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition
    from anabranch.server.partitions import PartitionShell

LOG = logger("upkeep")
TICK_S = 1.0
"""How often it is looked for logs whose flush.ms is over and for files to remove."""
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
        is_cleaning: Callable[[TopicPartition], bool],
        tell_unusable: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._shell = shell
        self._clock_ms = clock_ms
        self._is_cleaning = is_cleaning
        self._tell_unusable = tell_unusable
        self._ticking: asyncio.Task[None] | None = None
        self._asking: dict[LogFolder, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to write checkpoints, apply retention and remove deleted files."""
        self._ticking = asyncio.get_running_loop().create_task(
            lasting(self._tick, "the upkeep of logs", LOG)
        )

    def stop(self) -> None:
        """Do nothing more; the logs are closed next, with their checkpoints."""
        for each in (self._ticking, *self._asking.values()):
            if each is not None:
                each.cancel()

    async def _tick(self) -> None:
        watermarks_ms = points_ms = retention_ms = steady_ms()
        each_folder = self._shell.each_folder
        while True:
            await asyncio.sleep(TICK_S)
            config, now_ms = self._broker.config, steady_ms()
            self._shell.host_roomless()
            self._tell_unusable()
            self._flush_due(self._clock_ms())
            if now_ms - watermarks_ms >= config.replica_high_watermark_checkpoint_interval_ms:
                watermarks_ms = now_ms
                each_folder(self._shell.checkpoint_high_watermarks)
                each_folder(lambda folder: folder.remove_deleted(self._clock_ms()))
                each_folder(self._ask)
            if now_ms - points_ms >= min(
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
            ):
                points_ms = now_ms
                each_folder(LogFolder.checkpoint)
            if now_ms - retention_ms >= config.log_retention_check_interval_ms:
                retention_ms = now_ms
                await self.clean()

    def _ask(self, folder: LogFolder) -> None:
        """Begin to sync a folder, unless the last time has not ended: a dying disk takes long."""
        if folder not in self._asking:
            task = asyncio.get_running_loop().create_task(self._answered(folder))
            self._asking[folder] = task
            task.add_done_callback(lambda _: self._asking.pop(folder))

    async def _answered(self, folder: LogFolder) -> None:
        try:
            await asyncio.to_thread(folder.files.sync_dir, folder.path)
        except StorageFault as fault:
            self._shell.folder_failed(folder.path, fault)

    def _flush_due(self, now_ms: int) -> None:
        for replica in self._broker.partitions:
            if replica.log.fault is None and replica.log.sync_due(now_ms):
                self._broker.unsynced.add(replica.topic_partition)
        self._shell.tell_changed()

    async def clean(self) -> None:
        """Roll segments that are too old, apply retention, forget idle producers."""
        until = time.perf_counter() + SLICE_S
        for replica in list(self._broker.partitions):
            self._clean_one(replica, self._clock_ms())
            if time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S

    def _clean_one(self, replica: Replica, now_ms: int) -> None:
        log = replica.log
        if log.fault is not None or not self._shell.is_hosted(replica):
            return
        try:
            log.roll_if_due(now_ms)
            if not self._is_cleaning(replica.topic_partition):
                # Also where cleanup.policy is compact alone: what lies before the log start goes.
                if log.apply_retention(now_ms, replica.high_watermark):
                    self._broker.changed.add(replica.topic_partition)
            log.expire_producers(now_ms)
        except StorageFault as fault:
            self._broker.faults.append((replica, fault))
            self._shell.take_faults()
