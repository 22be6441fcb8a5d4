"""Performs the rounds in which a broker combines manifests, on a coordinator and a store.

Rule kept: nothing is decided here; no serving call waits for it: what is to be worked out between
calls is done in a thread. Not here: when a round is due
(`core/diskless/combination_rounds.py`), and what it does (`core/diskless/combination.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from anabranch.core.diskless.combination import (
    AskLastId,
    AskStates,
    Clocks,
    ListPage,
    Maker,
    PutWhole,
    ReadClocks,
    ReadWhole,
)
from anabranch.core.diskless.combination_rounds import (
    CombiningEnded,
    CombiningRounds,
    Step,
    one_round,
    rounds,
)
from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.garbage_rounds import AskTurn, DeleteObjects, FindUnknown, Turn
from anabranch.core.diskless.objects import Listed, ObjectStore
from anabranch.core.diskless.pause import Pause
from anabranch.server.chains import carried_out
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("diskless")
POLL_MS = 10_000


class Combiner:
    """One broker's rounds, in one registration."""

    def __init__(
        self, coordinator: Coordinator, store: ObjectStore, maker: Maker, kept: CombiningRounds
    ) -> None:
        self._coordinator, self._store, self._maker = coordinator, store, maker
        self._pages: AsyncIterator[list[Listed]]
        self._turn: Callable[[], tuple[int, int]] = lambda: (0, 1)
        self.rounds = kept

    async def run(self, turn: Callable[[], tuple[int, int]]) -> None:
        """Until cancelled: rounds when it is this broker's turn; `turn` gives (which, of how many)
        living brokers."""
        self._turn = turn
        while True:
            try:
                await carried_out(
                    rounds(self.rounds, self._maker, POLL_MS), self._make, in_thread=lambda: True
                )
            except Exception as fault:  # the manifests stay, and the rounds go on
                tell_unexpected(fault, "combining manifests")
                self.rounds.failed(steady_ms())
                LOG.error("combining manifests failed", fault=repr(fault))

    async def round(self) -> None:
        """One round; a fault is logged, and the round comes again soon."""
        await carried_out(one_round(self.rounds, self._maker), self._make, in_thread=lambda: True)

    async def _make(self, step: Step) -> Any:
        match step:
            case Pause(pause_ms):
                return await asyncio.sleep(pause_ms / 1000)
            case AskTurn():
                return Turn(steady_ms(), *self._turn())
            case ReadClocks():
                return Clocks(time.time_ns() // 1_000_000, steady_ms())
            case CombiningEnded():
                return _ended(step)
            case ListPage(prefix, is_first):
                if is_first:
                    self._pages = self._store.list(prefix)
                return await anext(self._pages, None)
            case ReadWhole(key, byte_size):
                [held] = await self._store.read(key, [(0, byte_size)])
                return held
            case PutWhole(key, content):
                return await self._store.put(key, [content])
            case DeleteObjects(keys):
                return await self._store.delete(keys)
            case FindUnknown(keys):
                return await self._coordinator.unknown(keys)
            case AskLastId():
                return await self._coordinator.last_id()
            case AskStates(states_of):
                return await self._coordinator.states(states_of)


def _ended(end: CombiningEnded) -> None:
    if end.fault is not None:
        LOG.warning("manifests were not combined; the broker tries again", why=str(end.fault))
    elif end.done is not None and end.done.number >= 0:
        LOG.info(
            "manifests were combined",
            checkpoint=end.done.number,
            manifests=end.done.combined,
            deleted=end.done.deleted,
        )
