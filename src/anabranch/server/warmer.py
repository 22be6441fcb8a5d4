"""Brings ranges of files into memory in threads, so that the loop never waits for a disk.

Rules kept: who lacks what a thread brings already waits for the same; what no thread reads yet is
not read once the node stops. Not here: who lacks what (`core.node.outcomes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from anabranch.core.log.files import ColdRead
from anabranch.core.node.outcomes import STOPS_UNREAD
from anabranch.core.outcome import Hangup

WARM_THREADS = 4

Done: TypeAlias = Callable[[BaseException | Hangup | None], None]


class Warmer:
    """The threads of one role. Calls are for the loop's thread."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._under_way: dict[ColdRead, asyncio.Future[None]] = {}

    def warm(self, reads: Sequence[ColdRead], done: Done) -> None:
        """Bring some ranges in; `done` is called on the loop when all are there, or will not be."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(WARM_THREADS, "warm")
        awaited = [self._under_way[read] for read in reads if read in self._under_way]
        fresh = [read for read in reads if read not in self._under_way]
        loop = asyncio.get_running_loop()
        for share in filter(None, (fresh[first::WARM_THREADS] for first in range(WARM_THREADS))):
            future = loop.run_in_executor(self._threads, warm_all, share)
            self._under_way.update(dict.fromkeys(share, future))
            future.add_done_callback(partial(self._ended, share))
            awaited.append(future)
        asyncio.gather(*awaited).add_done_callback(partial(_tell, done))

    def stop(self) -> None:
        """Read nothing that no thread reads yet."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, share: Sequence[ColdRead], _future: asyncio.Future[None]) -> None:
        for read in share:
            del self._under_way[read]


def warm_all(reads: Sequence[ColdRead]) -> None:
    """Bring some ranges into memory, one after the other; runs in a thread."""
    for read in reads:
        read.warm()


def _tell(done: Done, future: asyncio.Future[list[None]]) -> None:
    if future.cancelled():
        return  # the loop ends
    fault = future.exception()
    # A share that was queued when the node stopped was cancelled, and not read.
    done(Hangup(STOPS_UNREAD) if isinstance(fault, asyncio.CancelledError) else fault)
