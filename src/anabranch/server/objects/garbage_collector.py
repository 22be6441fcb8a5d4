"""Performs garbage rounds on a coordinator and a store.

What: a task that waits for this broker's turn and makes the calls of a round. Rule kept: nothing is
decided here. Not here: when a round is due (`core/diskless/garbage.py`), its steps, and what may go
(`core/diskless/garbage_round.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.garbage import GarbageRounds
from anabranch.core.diskless.garbage_round import (
    Call,
    DeleteObjects,
    FindDeletable,
    FindUnknown,
    ForgetObjects,
    ForgetProducers,
    ListObjects,
    MarkExpired,
    Page,
    ReadMark,
    collect,
    sweep,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.objects import Listed, ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.server.logs import logger

LOG = logger("diskless")
POLL_S = 1.0
"""How long a change in the number of brokers goes unnoticed."""


class Collector:
    """One broker's garbage rounds."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: ObjectStore,
        cluster_id: str,
        rounds: GarbageRounds,
    ) -> None:
        self._coordinator, self._store = coordinator, store
        self._prefix = object_prefix(cluster_id)
        self.rounds = rounds

    async def run(self, turn: Callable[[], tuple[int, int]]) -> None:
        """Until cancelled: rounds when it is this broker's turn; `turn` gives (which, of how many)
        living brokers."""
        while True:
            now_ms = _now_ms()
            which, brokers = turn()
            wait_ms = self.rounds.due_ms(now_ms, which, brokers) - now_ms
            if wait_ms > 0:
                await asyncio.sleep(min(wait_ms / 1000, POLL_S))
                continue
            await self.round(which, brokers)

    async def round(self, which: int, brokers: int) -> None:
        """One round; a fault is logged, and the round comes again soon."""
        try:
            left = await self.collect()
            if self.rounds.lists_now(_now_ms(), which, brokers):
                await self.sweep()
        except StorageFault as fault:
            self.rounds.failed(_now_ms())
            LOG.warning("a round of garbage collection failed", why=str(fault))
        except Exception as fault:  # the rounds go on; what was left out comes again
            self.rounds.failed(_now_ms())
            LOG.error("a round of garbage collection failed", fault=repr(fault))
        else:
            self.rounds.ended(_now_ms(), brokers, left)

    async def collect(self) -> int:
        """Delete what the coordinator says may go, in bounded steps; how much may be left."""
        left: int = await self._perform(collect(self.rounds))
        return left

    async def sweep(self) -> None:
        """List the store, and delete old objects that the coordinator named and does not know."""
        await self._perform(sweep(self.rounds))
        if foreign := self.rounds.foreign_objects:
            LOG.warning(
                "the store has objects of another coordinator's database, which are not deleted: "
                "see `anabranch diskless verify`",
                objects=foreign,
            )

    async def _perform(self, steps: Generator[Call, Any, Any]) -> Any:
        """Make each call of a round, and hand back what it gave; what the round returns."""
        pages = self._store.list(self._prefix)
        result = None
        while True:
            try:
                call = steps.send(result)
            except StopIteration as ended:
                return ended.value
            result = await self._make(call, pages)

    async def _make(self, call: Call, pages: AsyncIterator[list[Listed]]) -> Any:
        coordinator = self._coordinator
        match call:
            case MarkExpired(limit):
                return await coordinator.mark_expired(limit)
            case ForgetProducers(idle_ms, limit):
                return await coordinator.forget_producers(idle_ms, limit)
            case FindDeletable(grace_ms, limit):
                return await coordinator.to_delete(grace_ms, limit)
            case DeleteObjects(keys):
                return await self._store.delete(keys)
            case ForgetObjects(numbers):
                return await coordinator.deleted(numbers)
            case ReadMark():
                return await coordinator.mark()
            case ListObjects():
                page = await anext(pages, None)
                return None if page is None else Page(page, time.time_ns() // 1_000_000)
            case FindUnknown(keys):
                return await coordinator.unknown(keys)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
