"""Performs the rounds in which a broker looks how far tiering and compaction are behind.

Rule kept: nothing is decided here; what was measured stays when the coordinator is away, and what
waited then waits on. Not here: what is measured (`core/tiering/lag.py`, `compaction_lag.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.core.api.context import Broker
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault
from anabranch.core.tiering import compaction_lag
from anabranch.core.tiering.compaction_lag import AskTiered, DirtyTopic
from anabranch.core.tiering.lag import AskLags, TopicLag, measure
from anabranch.server.chains import carried_out
from anabranch.server.clocks import steady_ms
from anabranch.server.diskless.stores import Stores
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("diskless")
FIRST_SECONDS, ROUND_SECONDS = 30.0, 300.0
"""Before the first round, and between two."""


class TieringLags:
    """Of the partitions that a broker leads."""

    def __init__(self, broker: Broker, stores: Stores) -> None:
        self._broker, self._stores = broker, stores
        self._newest: list[TopicLag] = []
        self._dirty: list[DirtyTopic] = []
        self._at_ms = 0

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            try:
                await self.round()
            except StorageFault:  # other calls say so
                pass
            except Exception as fault:  # the rounds go on
                tell_unexpected(fault, "a round of measuring tiering")
                LOG.error("a round of measuring tiering failed", fault=repr(fault))
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """One round. Raises StorageFault where the coordinator is away."""
        broker = self._broker
        of = broker.image, broker.config, broker.broker_id
        newest = await carried_out(measure(*of), self._make)
        dirty = await carried_out(compaction_lag.measure(*of), self._make)
        self._newest, self._dirty, self._at_ms = newest, dirty, steady_ms()

    def newest(self) -> list[TopicLag]:
        """By topic; what waits has waited on since it was measured."""
        since_ms = steady_ms() - self._at_ms
        return [
            each._replace(waited_ms=each.waited_ms + since_ms) if each.waited_ms > 0 else each
            for each in self._newest
        ]

    def dirty(self) -> list[DirtyTopic]:
        """The same of compaction."""
        since_ms = steady_ms() - self._at_ms
        return [
            each._replace(waited_ms=each.waited_ms + since_ms) if each.waited_ms > 0 else each
            for each in self._dirty
        ]

    async def _make(self, step: compaction_lag.Step | AskLags) -> Any:
        match step:
            case Pause(pause_ms):
                return await asyncio.sleep(pause_ms / 1000)
            case AskLags(wanted, most_rows):
                return await self._stores.tiering.lags(wanted, most_rows)
            case AskTiered(keys):
                return await self._stores.tiering.tiered(keys)
