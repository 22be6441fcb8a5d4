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
    Limits,
    LocalSegment,
    copy_lag,
    local_limits,
    local_start,
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
    assert local_start(LOG, known, 0, Limits(0, 0), 99) == 0


def test_what_was_overwritten_is_copied_again():
    known = Coverage([remote(0, 30, (0, 0), (1, 15))], lineage((0, 0), (2, 15)))
    assert known.spans == [Span(0, 15)]
    assert firsts(to_copy(LOG, known, 0, 40)) == [10, 20]


def test_local_segments_go_by_age_and_size_once_they_were_copied():
    copied = coverage((0, 30))
    assert local_start(LOG, copied, 0, Limits(-1, -1), 99) == 0
    assert local_start(LOG, copied, 0, Limits(99, -1), 99) == 0
    assert local_start(LOG, copied, 0, Limits(98, -1), 99) == 30
    assert local_start(LOG, copied, 0, Limits(-1, 20), 0) == 20
    assert local_start(LOG, copied, 0, Limits(-1, 0), 0) == 30
    assert local_start(LOG, coverage((0, 10), (20, 30)), 0, Limits(0, 0), 99) == 10


def test_what_lies_before_the_log_start_goes_whether_copied_or_not():
    assert local_start(LOG, NOTHING, 20, Limits(-1, -1), 0) == 20
    assert local_start(LOG, NOTHING, 19, Limits(-1, -1), 0) == 10


def test_local_limits_follow_the_whole_log_unless_they_are_set():
    whole = Limits(700, 800)
    assert local_limits(whole, Limits(-2, -2), copies=True) == whole
    assert local_limits(whole, Limits(70, -2), copies=True) == Limits(70, 800)
    assert local_limits(whole, Limits(-1, 80), copies=True) == Limits(-1, 80)
    assert local_limits(whole, Limits(70, 80), copies=False) == whole


OFFSETS = st.integers(0, 30)


@given(
    st.lists(OFFSETS, min_size=1, max_size=6, unique=True),
    st.lists(st.tuples(OFFSETS, OFFSETS, st.integers(0, 2), st.sampled_from(SegmentState))),
    OFFSETS, OFFSETS, st.integers(-1, 12), st.integers(-1, 40),
)  # fmt: skip
def test_no_offset_goes_that_is_not_remote(ends, drawn, begun, log_start, most_ms, most_bytes):
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
    start = local_start(log, known, log_start, Limits(most_ms, most_bytes), 10)
    assert start in {each.start_offset for each in log}
    gone = range(log_start, start)
    assert readable.issuperset(gone)
    waiting = to_copy(log, known, log_start, 31)
    for each in log[:-1]:
        needs = set(range(max(each.start_offset, log_start), each.end_offset)) - readable
        assert (each in waiting) == bool(needs)
