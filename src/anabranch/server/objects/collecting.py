"""Performs garbage rounds: what `core/diskless/garbage.py` decides, on a coordinator and a store.

What: a task that waits for this broker's turn, and one round of bounded steps. Rule kept: the store
deletes before the coordinator forgets, so that what is interrupted is done again. Not here: when,
and what may go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.garbage import (
    DELETE_AT_ONCE,
    MARK_AT_ONCE,
    STEPS_A_ROUND,
    GarbageRounds,
    is_ours,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.objects import ObjectStore
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
        for _ in range(STEPS_A_ROUND):
            if not await self._coordinator.mark_expired(MARK_AT_ONCE):
                break
        idle_ms = self.rounds.pace.idle_producer_ms
        await self._coordinator.forget_producers(idle_ms, MARK_AT_ONCE)
        waiting: list[tuple[int, str]] = []
        for _ in range(STEPS_A_ROUND):
            grace_ms = self.rounds.pace.grace_ms
            waiting = await self._coordinator.to_delete(grace_ms, DELETE_AT_ONCE)
            if waiting:
                await self._delete(waiting)
            if len(waiting) < DELETE_AT_ONCE:
                return 0
        return len(waiting)

    async def _delete(self, waiting: list[tuple[int, str]]) -> None:
        gone = set(await self._store.delete([key for _, key in waiting]))
        await self._coordinator.deleted([number for number, key in waiting if key in gone])
        self.rounds.deleted_objects += len(gone)

    async def sweep(self) -> None:
        """List the store, and delete old objects that the coordinator named and does not know."""
        mark = await self._coordinator.mark()
        foreign = 0
        async for page in self._store.list(self._prefix):
            wall_ms = time.time_ns() // 1_000_000
            old = [each.key for each in page if self.rounds.is_old(each, wall_ms)]
            unknown = await self._coordinator.unknown(old) if old else []
            orphans = [key for key in unknown if is_ours(key, mark)]
            foreign += len(unknown) - len(orphans)
            if orphans:
                await self._store.delete(orphans)
                self.rounds.deleted_orphans += len(orphans)
        self.rounds.foreign_objects = foreign
        if foreign:
            LOG.warning(
                "the store has objects that another coordinator named; none is deleted: "
                "see `anabranch diskless verify`",
                objects=foreign,
            )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
