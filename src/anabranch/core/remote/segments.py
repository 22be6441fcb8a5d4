"""One remote segment: what is known of it, and the states that it goes through.

What: the fact that a coordinator keeps for each try to copy a local segment. Rules kept: each try
has an id of its own, so that no two of them write one object; only a FINISHED segment is read, or
lets a local one go; a state follows another as the table says, and any other pair is a fault of
ours. Differences from Kafka: `end_offset` is exclusive here, as everywhere in this project.
Source: KIP-405, RemoteLogSegmentMetadata and RemoteLogSegmentState. Not here: where the bytes lie
(`keys.py`), which leader epochs count (`lineage.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NewType

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import Bug

SegmentId = NewType("SegmentId", bytes)
"""16 bytes, drawn at random for each try."""
CUSTOM_METADATA_BYTES = 128
"""Kafka's default limit of what a store may add to a segment's facts."""


class SegmentState(IntEnum):
    """Kafka's names and numbers."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_MAY_FOLLOW = {
    SegmentState.COPY_SEGMENT_STARTED: {
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    },
    SegmentState.COPY_SEGMENT_FINISHED: {SegmentState.DELETE_SEGMENT_STARTED},
    SegmentState.DELETE_SEGMENT_STARTED: {SegmentState.DELETE_SEGMENT_FINISHED},
    SegmentState.DELETE_SEGMENT_FINISHED: set[SegmentState](),
}
"""A state may also follow itself: a call whose answer was lost is made again."""


class EpochStart(NamedTuple):
    """A leader epoch, and its first offset in a log or a segment."""

    epoch: int
    start_offset: int


class RemoteSegment(NamedTuple):
    """The facts of one try; offsets are `[start_offset, end_offset)`."""

    segment_id: SegmentId
    key: LogKey
    start_offset: int
    end_offset: int
    max_timestamp: int
    """-1: no record has one."""
    leader_epochs: tuple[EpochStart, ...]
    """In order; the first one begins at `start_offset`."""
    byte_size: int
    """Of the batches; indexes are not counted, as in Kafka."""
    broker_id: int
    leader_epoch: int
    """Of the leader that copies it."""
    has_aborted: bool = False
    """Whether there is a transaction index."""
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    event_ms: int = 0
    """When the state was reached, by the coordinator's clock."""
    custom_metadata: bytes = b""

    @property
    def is_finished(self) -> bool:
        """Whether it may be read."""
        return self.state is SegmentState.COPY_SEGMENT_FINISHED


def check_step(state: SegmentState, following: SegmentState) -> None:
    """Raise Bug where a state does not follow another."""
    if following is not state and following not in _MAY_FOLLOW[state]:
        raise Bug(f"a remote segment in state {state.name} cannot become {following.name}")
