"""Segments for the tests of remote logs."""

from __future__ import annotations

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.local_log import LocalSegment
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(range(16))), 5)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def epochs(*entries: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(*each) for each in entries)


def lineage(*entries: tuple[int, int]) -> Lineage:
    """Of a leader whose epoch is the last one."""
    return Lineage(epochs(*entries), entries[-1][0])


def remote(
    start: int,
    end: int,
    *entries: tuple[int, int],
    number: int = 0,
    state: SegmentState = FINISHED,
    size: int | None = None,
    newest_ms: int = 0,
    leader_epoch: int | None = None,
) -> RemoteSegment:
    """A segment, of epoch 0 unless entries say otherwise, with a byte for each offset."""
    leader_epochs = epochs(*(entries or ((0, start),)))
    return RemoteSegment(
        SegmentId(number.to_bytes(16)), KEY, start, end, newest_ms, leader_epochs,
        end - start if size is None else size, 1,
        leader_epochs[-1].epoch if leader_epoch is None else leader_epoch, state=state,
    )  # fmt: skip


def local(*ends: int, first: int = 0, newest_ms: int = 0) -> list[LocalSegment]:
    """Segments side by side, with a byte for each offset; the last one is active."""
    starts = [first, *ends[:-1]]
    return [
        LocalSegment(start, end, end - start, newest_ms, end is ends[-1])
        for start, end in zip(starts, ends, strict=True)
    ]
