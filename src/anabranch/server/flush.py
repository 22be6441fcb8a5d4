"""Rounds of fdatasync: who waits for the disk shares one call.

What: after each step the partitions that handlers left in `broker.unsynced` are synced in threads,
one round a log at a time; what was appended while a round ran waits for the next one. Why threads:
the loop must never wait for a disk. A round ends in `replica.synced`, which may raise the high
watermark, which wakes who waits for it.

Rule kept: a sync that failed is never tried again as if nothing had happened; the folder goes
offline, because what the kernel then holds is unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from anabranch.core.api.context import Broker
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import Syncable
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.syncing import ClosingRound
from anabranch.core.types import TopicPartition

SYNC_THREADS = 8
"""As many logs can wait for the disk at once; a disk merges the rest into few writes anyway."""
SLICE_S = 0.005
"""How long gathering what a folder's logs need may hold the loop at a time."""


class Flusher:
    """The flush rounds of one broker."""

    def __init__(
        self,
        broker: Broker,
        wake: Callable[..., None],
        failed: Callable[[str, StorageFault], None],
    ) -> None:
        self.rounds_total = 0
        self._broker = broker
        self._wake = wake
        self._failed = failed
        self._running: dict[TopicPartition, asyncio.Future[None]] = {}
        self._again: set[TopicPartition] = set()
        self._threads: ThreadPoolExecutor | None = None

    def start_rounds(self) -> None:
        """Begin a round for every partition in `broker.unsynced`; called at the end of a step."""
        unsynced = self._broker.unsynced
        while unsynced:
            partition = unsynced.pop()
            if partition in self._running:
                self._again.add(partition)
            else:
                self._start(partition)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return not self._running

    async def rounds(self) -> None:
        """Wait for the rounds that run now; who appends meanwhile begins others."""
        if self._running:
            await asyncio.wait(tuple(self._running.values()))

    async def stop(self) -> None:
        """Wait for every round and what came of it; called when nothing is appended any more.

        A round that failed must be known before its log is closed: a second sync could succeed.
        """
        while self._running:
            await self.rounds()
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def _start(self, partition: TopicPartition) -> None:
        replica = self._broker.partitions.get(partition.topic, partition.partition)
        if replica is None:
            return
        try:
            target = replica.log.sync_target()
        except StorageFault as fault:
            self._failed(replica.folder, fault)
            return
        if target is None:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, "sync")
        self.rounds_total += 1
        end_offset, files = target
        synced = asyncio.get_running_loop().run_in_executor(self._threads, sync_all, files)
        self._running[partition] = synced
        synced.add_done_callback(partial(self._ended, partition, replica, end_offset))

    def _ended(
        self,
        partition: TopicPartition,
        replica: Any,
        end_offset: int,
        future: asyncio.Future[None],
    ) -> None:
        del self._running[partition]
        if future.cancelled():
            return
        fault = future.exception()
        is_hosted = self._broker.partitions.get(*partition) is replica
        if fault is not None and is_hosted:  # the files of a deleted partition may be gone
            known = fault if isinstance(fault, StorageFault) else StorageFault(str(fault))
            self._failed(replica.folder, known)
        elif fault is None and replica.synced(end_offset):
            self._broker.changed.add(partition)
        if partition in self._again:
            self._again.discard(partition)
            self._broker.unsynced.add(partition)
        self._wake()


async def sync_logs(folder: LogFolder) -> None:
    """Before a folder is closed: sync every log that needs it, several at a time, as a disk serves
    many waiters at once. Raises StorageFault."""
    rounds = []
    until = time.perf_counter() + SLICE_S
    for each in folder.closing_rounds():
        if each is not None:
            rounds.append(each)
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    if not rounds:
        return
    await asyncio.to_thread(sync_rounds, rounds)
    folder.files.sync_dir(folder.path)
    for each in rounds:
        each.log.synced(each.end_offset)


def sync_rounds(rounds: Sequence[ClosingRound]) -> None:
    """Sync the files of many logs, some logs at a time; runs in a thread. Raises StorageFault."""
    with ThreadPoolExecutor(SYNC_THREADS, "sync") as threads:
        for _ in threads.map(sync_all, [each.files for each in rounds]):
            pass


def sync_all(files: tuple[Syncable, ...]) -> None:
    """Sync some files, one after the other; runs in a thread."""
    for file in files:
        file.sync()
