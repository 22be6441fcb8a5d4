"""Positions and index of a flow, as the target has them.

What: `Ledger` reads the two topics on. Driver, tasks and the command line use the same.
"""

from __future__ import annotations

import asyncio

from anabranch.client.cluster import Cluster
from anabranch.core.mirror import ledger
from anabranch.core.mirror.index import Chunk
from anabranch.core.mirror.policy import Policy
from anabranch.pipelines.mirror.topic_reader import read_on

Place = ledger.Place


class Ledger(ledger.Ledger):
    """What the target knows of one flow's progress."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.fresh: list[Chunk] = []
        """Chunks that were read and not taken over yet; see `take_fresh`."""
        self._reading = asyncio.Lock()

    async def read(self, target: Cluster, *, settled: bool = False, looks: bool = False) -> None:
        """Read both topics to their ends. The index second: it is written before the positions or
        with them, so it has all that they say. With `settled` all that was committed before is
        read, even behind a transaction of another slot that is open. `looks` as for `read_on`."""
        async with self._reading:
            await self._read(target, settled=settled, looks=looks)

    async def _read(self, target: Cluster, *, settled: bool, looks: bool) -> None:
        how = {"settled": settled, "looks": looks}
        topic = self._policy.positions_topic()
        positions = await read_on(target, topic, self.positions_read_to, **how)
        self.positions_read_to = positions.offsets
        self.take_positions(positions.records)
        topic = self._policy.index_topic()
        index = await read_on(target, topic, self.index_read_to, **how)
        self.index_read_to = index.offsets
        self.fresh += self.take_index(index.records)

    def take_fresh(self) -> list[Chunk]:
        """The chunks that were read since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh
