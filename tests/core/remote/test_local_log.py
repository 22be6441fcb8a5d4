"""What is copied, and what of the local log may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.remote.remote_kit import lineage, local, remote

from anabranch.core.remote.lineage import Lineage, Span
from anabranch.core.remote.local_log import (
    CopyLag,
    Coverage,
    LocalSegment,
    copy_lag,
    to_copy,
)
from anabranch.core.remote.segments import EpochStart, SegmentState

LOG = local(10, 20, 30, 40)
ONE_EPOCH = lineage((0, 0))
NOTHING = Coverage([], ONE_EPOCH)


def coverage(*spans: tuple[int, int]) -> Coverage:
    return Coverage([remote(*each) for each in spans], ONE_EPOCH)


def firsts(segments: list[LocalSegment]) -> list[int]:
    return [each.start_offset for each in segments]


def test_closed_segments_below_the_last_stable_offset_are_copied_in_order():
    assert firsts(to_copy(LOG, NOTHING, 0, 40)) == [0, 10, 20]
    assert firsts(to_copy(LOG, NOTHING, 0, 29)) == [0, 10]
    assert firsts(to_copy(LOG, NOTHING, 0, 0)) == []
    assert firsts(to_copy(LOG, coverage((0, 20)), 0, 40)) == [20]
    assert firsts(to_copy(LOG, NOTHING, 12, 40)) == [10, 20]
    assert copy_lag(to_copy(LOG, NOTHING, 0, 40)) == CopyLag(3, 30)


def test_a_hole_is_filled_and_a_part_is_copied_as_a_whole():
    assert firsts(to_copy(LOG, coverage((0, 10), (20, 30)), 0, 40)) == [10]
    assert firsts(to_copy(LOG, coverage((0, 15)), 0, 40)) == [10, 20]
    assert firsts(to_copy(LOG, coverage((15, 30)), 15, 40)) == []


@pytest.mark.parametrize("state", [each for each in SegmentState if each.value != 1])
def test_only_finished_segments_count(state):
    known = Coverage([remote(0, 30, state=state)], ONE_EPOCH)
    assert firsts(to_copy(LOG, known, 0, 40)) == [0, 10, 20]
    assert known.reach(0) == 0


def test_what_was_overwritten_is_copied_again():
    known = Coverage([remote(0, 30, (0, 0), (1, 15))], lineage((0, 0), (2, 15)))
    assert known.spans == [Span(0, 15)]
    assert firsts(to_copy(LOG, known, 0, 40)) == [10, 20]


def test_a_log_was_copied_up_to_the_first_hole():
    known = coverage((5, 10), (10, 20), (25, 30))
    assert [known.reach(at) for at in (0, 5, 19, 20, 24, 25, 30)] == [0, 20, 20, 20, 24, 30, 30]
    assert NOTHING.reach(7) == 7
    assert known.holds(5, 20) and known.holds(22, 22)
    assert not known.holds(5, 21) and not known.holds(4, 6)


OFFSETS = st.integers(0, 30)


@given(
    st.lists(OFFSETS, min_size=1, max_size=6, unique=True),
    st.lists(st.tuples(OFFSETS, OFFSETS, st.integers(0, 2), st.sampled_from(SegmentState))),
    OFFSETS, OFFSETS,
)  # fmt: skip
def test_what_counts_as_copied_is_remote(ends, drawn, begun, log_start):
    """The log is of epoch 0, and from an offset on of epoch 2; segments are of one epoch each."""
    log = local(*sorted(each + 1 for each in ends))
    of = Lineage((EpochStart(0, 0), EpochStart(2, begun + 1)), 2)
    segments = [
        remote(min(one, other), max(one, other) + 1, (epoch, min(one, other)), state=state)
        for one, other, epoch, state in drawn
    ]
    readable = {
        at
        for each in segments
        if each.state is SegmentState.COPY_SEGMENT_FINISHED
        for at in range(each.start_offset, each.end_offset)
        if each.leader_epochs[0].epoch == (0 if at <= begun else 2)
    }
    known = Coverage(segments, of)
    end = known.reach(log_start)
    assert readable.issuperset(range(log_start, end))
    assert end not in readable
    waiting = to_copy(log, known, log_start, 31)
    for each in log[:-1]:
        needs = set(range(max(each.start_offset, log_start), each.end_offset)) - readable
        assert (each in waiting) == bool(needs)
