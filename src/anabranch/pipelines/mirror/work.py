"""What the driver hands a task, and what a task answers: plain data that can be pickled.

What: `SlotWork` is one slot of a flow for one wave, `SlotAnswer` what came of it. Where a partition
goes on is decided from what the target has (`known` and what was written since `read_to`), not from
what Spark or the driver believe, so that a task that Spark starts once more begins where the first
one ended.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.figures import Moved
from anabranch.core.mirror.index import Chunk
from anabranch.core.mirror.landed import Origin

Place = tuple[str, int]


class PartitionWork(NamedTuple):
    """One partition of the source, and where its records go."""

    topic: str
    partition: int
    remote: str
    source_id: bytes
    target_id: bytes
    limit_bytes: int
    """The largest batch that the target's topic takes."""
    position: int | None
    """The last offset that was mirrored, as the driver read it."""
    chunk: Chunk | None
    """The newest chunk of the index, as the driver read it."""

    @property
    def place(self) -> Place:
        """Its place at the source."""
        return self.topic, self.partition

    @property
    def origin(self) -> Origin:
        """Its place, and the topics on both sides."""
        return Origin(self.topic, self.partition, self.source_id, self.target_id)


class SlotWork(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a flow, for one wave."""

    flow: Flow
    slot: int
    plan: bytes
    """What names the plan that this is a part of."""
    newest_plan: bytes
    """The newest plan's name, as the driver read it."""
    partitions: tuple[PartitionWork, ...]
    positions_read_to: dict[int, int]
    """How far the driver has read the topic of positions, by partition."""
    index_read_to: dict[int, int]
    positions_partitions: int
    index_partitions: int


class SlotAnswer(msgspec.Struct, kw_only=True):
    """What a slot did in a wave; sums, and sentences about what stands still."""

    flow: str
    slot: int
    records: int = 0
    size_bytes: int = 0
    rounds: int = 0
    opened: dict[str, int] = {}
    whole: int = 0
    latency_ms: float = 0.0
    """Of all rounds together, from taking what was fetched to its acknowledgement."""
    notes: list[str] = []
    faults: dict[str, str] = {}
    """Partition -> why it stands still."""
    moved: list[Moved] = []
    is_live: bool = False
    """Whether it came so far that it could mirror."""
    is_superseded: bool = False
    """Whether another driver has planned the flow since."""
