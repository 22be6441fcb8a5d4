"""Performs garbage rounds on a coordinator and a store.

What: a task that makes the calls of this broker's rounds. Rule kept: nothing is decided here. Not
here: when a round is due, its steps, and what may go (`core/diskless/garbage_rounds.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.garbage import GarbageRounds
from anabranch.core.diskless.garbage_rounds import (
    AskTurn,
    CountDeletable,
    DeleteObjects,
    FindDeletable,
    FindUnknown,
    ForgetObjects,
    ForgetProducers,
    ListObjects,
    MarkExpired,
    Page,
    ReadMark,
    RoundEnded,
    Step,
    Turn,
    collect,
    one_round,
    rounds,
    sweep,
)
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.objects import Listed, ObjectStore
from anabranch.core.diskless.pause import Pause
from anabranch.server.chains import carried_out
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("diskless")
POLL_MS = 1_000
"""How long a change in the number of brokers goes unnoticed."""


class Collector:
    """One broker's garbage rounds."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: ObjectStore,
        cluster_id: str,
        kept: GarbageRounds,
    ) -> None:
        self._coordinator, self._store = coordinator, store
        self._prefix = object_prefix(cluster_id)
        self._pages: AsyncIterator[list[Listed]]
        self._turn: Callable[[], tuple[int, int]] = lambda: (0, 1)
        self.rounds = kept

    async def run(self, turn: Callable[[], tuple[int, int]]) -> None:
        """Until cancelled: rounds when it is this broker's turn; `turn` gives (which, of how many)
        living brokers."""
        self._turn = turn
        while True:
            await self._guarded(rounds(self.rounds, POLL_MS))

    async def round(self, which: int, brokers: int) -> None:
        """One round; a fault is logged, and the round comes again soon."""
        await self._guarded(one_round(self.rounds, Turn(steady_ms(), which, brokers)))

    async def collect(self) -> None:
        """Delete what the coordinator says may go, in bounded steps."""
        await carried_out(collect(self.rounds), self._make)

    async def sweep(self) -> None:
        """List the store, and delete old objects that the coordinator named and does not know."""
        await carried_out(sweep(self.rounds), self._make)

    async def _guarded(self, steps: Generator[Step, Any, None]) -> None:
        try:
            await carried_out(steps, self._make)
        except Exception as fault:  # the rounds go on; what was left out comes again
            tell_unexpected(fault, "a round of garbage collection")
            self.rounds.failed(steady_ms())
            LOG.error("a round of garbage collection failed", fault=repr(fault))

    def _ended(self, end: RoundEnded) -> None:
        if end.fault is not None:
            LOG.warning("a round of garbage collection failed", why=str(end.fault))
        elif end.has_listed and (foreign := self.rounds.foreign_objects):
            LOG.warning(
                "the store has objects of another coordinator's database, which are not deleted: "
                "see `anabranch diskless verify`",
                objects=foreign,
            )

    async def _make(self, step: Step) -> Any:
        coordinator = self._coordinator
        match step:
            case Pause(pause_ms):
                return await asyncio.sleep(pause_ms / 1000)
            case AskTurn():
                return Turn(steady_ms(), *self._turn())
            case RoundEnded():
                return self._ended(step)
            case MarkExpired(limit):
                return await coordinator.mark_expired(limit)
            case ForgetProducers(idle_ms, limit):
                return await coordinator.forget_producers(idle_ms, limit)
            case FindDeletable(grace_ms, limit):
                return await coordinator.to_delete(grace_ms, limit)
            case CountDeletable(grace_ms, limit):
                return await coordinator.count_to_delete(grace_ms, limit)
            case DeleteObjects(keys):
                return await self._store.delete(keys)
            case ForgetObjects(numbers):
                return await coordinator.deleted(numbers)
            case ReadMark():
                self._pages = self._store.list(self._prefix)
                return await coordinator.mark()
            case ListObjects():
                page = await anext(self._pages, None)
                return None if page is None else Page(page, time.time_ns() // 1_000_000)
            case FindUnknown(keys):
                return await coordinator.unknown(keys)
