"""Rounds of fdatasync: who waits for the disk shares one call.

What: performs the rounds that `core/broker/hosting/syncs.py` begins, each in a thread, because the
loop must never wait for a disk; and syncs the logs of a folder before it is closed. Not here: which
log is synced when, and what a failed sync means.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import PrepareMove, SyncLog
from anabranch.core.broker.hosting.events import MovePrepared, SyncEnded
from anabranch.core.errors import StorageFault
from anabranch.core.log.failed_sync import leave_mark
from anabranch.core.log.files import Syncable
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.sync_round import ClosingRound
from anabranch.server.clocks import wall_ms
from anabranch.server.own_faults import tell_unexpected

if TYPE_CHECKING:
    from anabranch.server.hosting_performer import Performer

SYNC_THREADS = 8
"""As many logs can wait for the disk at once; a disk merges the rest into few writes anyway."""
SLOW_S = 0.5
"""A disk that works takes less, and nobody kills a node so soon for one that does not."""
SLICE_S = 0.005
"""How long gathering what a folder's logs need may hold the loop at a time."""


class Flusher:
    """The flush rounds of one broker."""

    def __init__(self, shell: Performer, wake: Callable[..., None]) -> None:
        self._shell = shell
        self._wake = wake
        self._running: set[asyncio.Future[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        shell.performs(SyncLog, self._start)
        shell.performs(PrepareMove, self._prepare_move)

    @property
    def rounds_total(self) -> int:
        """How many rounds were begun."""
        return self._shell.hosting.syncs.rounds_total

    def start_rounds(self) -> None:
        """Begin a round for every partition in `broker.unsynced`; called at the end of a step."""
        self._shell.hosting.start_syncs()
        self._shell.perform()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return not self._running

    async def stop(self) -> None:
        """Wait for every round and what came of it; called when nothing is appended any more.

        A round that failed must be known before its log is closed: a second sync could succeed.
        """
        while self._running:
            await asyncio.wait(tuple(self._running))
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def _start(self, asked: SyncLog) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, "sync")
        loop = asyncio.get_running_loop()
        synced = loop.run_in_executor(self._threads, sync_all, asked.files)
        slow = loop.call_later(SLOW_S, self._slow, asked)
        self._running.add(synced)
        synced.add_done_callback(partial(self._ended, asked, slow))

    def _prepare_move(self, asked: PrepareMove) -> None:
        """Work for a copy that moves to another folder, in a thread of the syncs."""
        prepared = asyncio.get_running_loop().run_in_executor(None, sync_all, asked.files)
        self._running.add(prepared)
        prepared.add_done_callback(self._move_prepared)

    def _move_prepared(self, future: asyncio.Future[None]) -> None:
        self._running.discard(future)
        if future.cancelled():
            return
        fault = _fault_of(future, "preparing a log's move")
        self._shell.answer(MovePrepared(fault, wall_ms()))
        self._shell.run()
        self._wake()

    def _slow(self, asked: SyncLog) -> None:
        """A sync takes long. It may fail after this process was killed because of it."""
        log = asked.replica.log
        asyncio.get_running_loop().run_in_executor(None, leave_mark, log)

    def _ended(
        self, asked: SyncLog, slow: asyncio.TimerHandle, future: asyncio.Future[None]
    ) -> None:
        slow.cancel()
        self._running.discard(future)
        if future.cancelled():
            return
        fault = _fault_of(future, "syncing a log")
        self._shell.answer(SyncEnded(asked, fault))
        self._wake()


def _fault_of(future: asyncio.Future[None], doing: str) -> StorageFault | None:
    """Why a thread did not do what it was asked for."""
    fault = future.exception()
    if fault is not None and not isinstance(fault, StorageFault):
        tell_unexpected(fault, doing)
        fault = StorageFault(str(fault))
    return fault


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
