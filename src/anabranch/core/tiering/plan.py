"""Which runs of a diskless partition become its next segment.

What: from the oldest runs of a partition, in order, those that are old enough and that fit into one
segment. Rules kept: a segment begins where the tiered part ends, or where the log does; it takes
whole runs, in order, without passing one over; it is made once it has the least size, or, of a
partition with small batches, once it frees `MANY_RUNS` rows; it has a bounded size and a bounded
number of rows, which one transaction deletes. Not here: who asks, SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.core.diskless.rows import LogKey, LogState, Run
from anabranch.core.remote.segments import SegmentId

MOST_SEGMENT_BYTES = 128 << 20
"""A task has a segment in memory; `segment.bytes` counts where it is less."""
MOST_RUNS = 5_000
"""Of one segment: a transaction of some hundred milliseconds."""
MANY_RUNS = 1_000
"""So many rows are worth a segment, however small it is."""


class Eligible(NamedTuple):
    """A partition, and what its topic's settings ask for."""

    key: LogKey
    age_ms: int
    """How old a commit must be."""
    least_bytes: int
    most_bytes: int


class AgedRun(NamedTuple):
    """A run, and when it was committed by the coordinator's clock."""

    run: Run
    committed_ms: int


class TieredEnd(NamedTuple):
    """The newest segment of a partition: its snapshot of producers goes on in the next one."""

    segment_id: SegmentId
    start_offset: int
    end_offset: int


class PlannedSegment(NamedTuple):
    """Offsets `[start_offset, end_offset)` and the runs that hold them."""

    start_offset: int
    end_offset: int
    runs: tuple[Run, ...]

    @property
    def byte_size(self) -> int:
        """Of the batches."""
        return sum(run.byte_size for run in self.runs)


def next_segment(
    state: LogState, aged: Iterable[AgedRun], wanted: Eligible, now_ms: int
) -> PlannedSegment | None:
    """The next segment of a partition; None while there is none to be made."""
    taken: list[Run] = []
    size = 0
    is_full = False
    for run, committed_ms in aged:
        if run.end_offset <= state.first_run_offset:
            continue  # retention deletes it
        if committed_ms + wanted.age_ms > now_ms:
            break
        is_full = len(taken) >= MOST_RUNS or (
            bool(taken) and size + run.byte_size > wanted.most_bytes
        )
        if is_full:
            break
        taken.append(run)
        size += run.byte_size
    if not taken or not (is_full or size >= wanted.least_bytes or len(taken) >= MANY_RUNS):
        return None
    start_offset = max(state.tiered_end, min(taken[0].base_offset, state.first_run_offset))
    return PlannedSegment(start_offset, taken[-1].end_offset, tuple(taken))


def begins_right(state: LogState, start_offset: int, end_offset: int) -> bool:
    """Whether a segment with these offsets goes on where the tiered part ends, and has something
    that is not deleted."""
    is_next = state.tiered_end <= start_offset <= state.first_run_offset
    return is_next and end_offset > state.start_offset
