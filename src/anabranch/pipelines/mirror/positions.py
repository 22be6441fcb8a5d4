"""Positions and index of a flow, as the target has them.

What: `Ledger` reads the two topics on and keeps what counts: the last offset that was mirrored of
each partition, and the chunks of its index. Driver, tasks and the command line use the same.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from anabranch.client.cluster import Cluster
from anabranch.core.mirror.formats import ForeignRecord, read_position
from anabranch.core.mirror.index import Chunk, PartitionIndex, index_of, read_chunk, read_key
from anabranch.core.mirror.policy import Policy
from anabranch.core.wire.records import Record
from anabranch.pipelines.mirror.topic_reader import read_on

Place = tuple[str, int]


class Ledger:
    """What the target knows of one flow's progress."""

    def __init__(self, policy: Policy) -> None:
        self.positions: dict[Place, int] = {}
        self.chunks: dict[Place, dict[int, Chunk]] = defaultdict(dict)
        """Place -> the target's offset of the first run -> chunk."""
        self.positions_read_to: dict[int, int] = {}
        self.index_read_to: dict[int, int] = {}
        self.fresh: list[Chunk] = []
        """Chunks that were read and not taken over yet; see `take_fresh`."""
        self.foreign = 0
        """Records that are not what these topics should have."""
        self._policy = policy
        self._reading = asyncio.Lock()
        self._indexes: dict[Place, tuple[bytes, bytes, PartitionIndex]] = {}

    async def read(self, target: Cluster) -> None:
        """Read both topics to their ends. The index second: it is written before the positions or
        with them, so it has all that they say."""
        async with self._reading:
            await self._read(target)

    async def _read(self, target: Cluster) -> None:
        positions = await read_on(target, self._policy.positions_topic(), self.positions_read_to)
        self.positions_read_to = positions.offsets
        self.take_positions(positions.records)
        index = await read_on(target, self._policy.index_topic(), self.index_read_to)
        self.index_read_to = index.offsets
        self.take_index(index.records)

    def take_fresh(self) -> list[Chunk]:
        """The chunks that were read since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def take_positions(self, records: Iterable[Record]) -> None:
        """Records of the topic of positions, in their order."""
        for record in records:
            try:
                found = read_position(record.key or b"", record.value)
            except ForeignRecord:
                self.foreign += 1
                continue
            if found is None or found.cluster != self._policy.source:
                continue
            place = found.topic, found.partition
            if found.offset is None:
                self.positions.pop(place, None)
            else:
                self.positions[place] = found.offset

    def take_index(self, records: Iterable[Record]) -> None:
        """Records of the index, in their order."""
        for record in records:
            try:
                topic, partition, downstream = read_key(record.key or b"")
                chunk = (
                    None if record.value is None else read_chunk(record.key or b"", record.value)
                )
            except ForeignRecord:
                self.foreign += 1
                continue
            self._indexes.pop((topic, partition), None)
            if chunk is None:
                self.chunks[topic, partition].pop(downstream, None)
            else:
                self.chunks[topic, partition][downstream] = chunk
                self.fresh.append(chunk)

    def take_chunk(self, chunk: Chunk) -> None:
        """A chunk that is known already."""
        self.chunks[chunk.topic, chunk.partition][chunk.runs[0].downstream] = chunk
        self._indexes.pop((chunk.topic, chunk.partition), None)

    def newest(self, place: Place) -> Chunk | None:
        """The chunk that was written last."""
        found = self.chunks.get(place)
        if not found:
            return None
        return max(found.values(), key=lambda each: each.runs[-1].downstream)

    def index(self, place: Place, *, source_id: bytes, target_id: bytes) -> PartitionIndex:
        """The index of a partition of the topics that are there now."""
        kept = self._indexes.get(place)
        if kept is not None and kept[:2] == (source_id, target_id):
            return kept[2]
        chunks = self.chunks.get(place, {}).values()
        index = index_of(chunks, source_id=source_id, target_id=target_id)
        self._indexes[place] = source_id, target_id, index
        return index
