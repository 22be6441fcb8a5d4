"""Positions and index of a flow, from the records of the two topics that have them.

What: `Ledger` takes those records in their order and keeps what counts: the last offset that was
mirrored of each partition, and the chunks of its index. Rule kept: what cannot be read is counted
in `foreign` and passed over. Not here: reading the topics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from anabranch.core.mirror.formats import ForeignRecord, read_position
from anabranch.core.mirror.index import (
    PLAN_KEY,
    Chunk,
    PartitionIndex,
    index_of,
    read_chunk,
    read_key,
)
from anabranch.core.mirror.policy import Policy
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.records import Record

Place = tuple[str, int]


class Ledger:
    """What the target knows of one flow's progress."""

    def __init__(self, policy: Policy) -> None:
        self.positions: dict[Place, int] = {}
        self.chunks: dict[Place, dict[int, Chunk]] = defaultdict(dict)
        """Place -> the target's offset of the first run -> chunk."""
        self.positions_read_to: dict[int, int] = {}
        self.index_read_to: dict[int, int] = {}
        self.plan = b""
        """What names the newest plan; empty where there was none yet."""
        self.foreign = 0
        """Records that are not what these topics should have."""
        self._policy = policy
        self._indexes: dict[Place, tuple[bytes, bytes, PartitionIndex]] = {}

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

    def take_index(self, records: Iterable[Record]) -> list[Chunk]:
        """Records of the index, in their order; the chunks among them."""
        chunks = []
        for record in records:
            if record.key == PLAN_KEY:
                self.plan = record.value or b""
                continue
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
                chunks.append(chunk)
        return chunks

    def take_chunk(self, chunk: Chunk) -> None:
        """A chunk that is known already."""
        self.chunks[chunk.topic, chunk.partition][chunk.runs[0].downstream] = chunk
        self._indexes.pop((chunk.topic, chunk.partition), None)

    def newest(
        self, place: Place, *, source_id: bytes = ZERO_TOPIC_ID, target_id: bytes = ZERO_TOPIC_ID
    ) -> Chunk | None:
        """The chunk that was written last, of the topics of these ids where they have one: offsets
        of a topic that was deleted may be higher."""
        found = self.chunks.get(place)
        if not found:
            return None
        ids = source_id, target_id
        return max(
            found.values(),
            key=lambda each: ((each.source_id, each.target_id) == ids, each.runs[-1].downstream),
        )

    def index(self, place: Place, *, source_id: bytes, target_id: bytes) -> PartitionIndex:
        """The index of a partition of the topics that are there now."""
        kept = self._indexes.get(place)
        if kept is not None and kept[:2] == (source_id, target_id):
            return kept[2]
        chunks = self.chunks.get(place, {}).values()
        index = index_of(chunks, source_id=source_id, target_id=target_id)
        self._indexes[place] = source_id, target_id, index
        return index
