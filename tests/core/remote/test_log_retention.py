"""Retention of the remote and the local log as one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.remote.remote_kit import lineage, local, remote

from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.log_retention import (
    Stretch,
    log_start_after,
    remote_size_bytes,
    stretches,
    to_remove,
    trusted_now_ms,
)
from anabranch.core.remote.segments import RemoteSegment, SegmentState

ONE_EPOCH = lineage((0, 0))
NO_LIMIT = Limits(-1, -1)


def whole(segments, log, of, log_start):
    """The stretches of segments that are given in any order."""
    ordered = sorted(segments, key=lambda each: (each.start_offset, each.end_offset))
    return list(stretches(ordered, log, of, log_start))


def start_after(segments, log, limits, *, log_start=0, high_watermark=1_000, now_ms=0):
    found = whole(segments, log, ONE_EPOCH, log_start)
    return log_start_after(found, log_start, limits, high_watermark, now_ms)


def test_size_counts_the_whole_log_once():
    """Offsets 20 to 40 are both remote and local."""
    segments = [remote(0, 20), remote(20, 40)]
    log = local(40, 60, first=20)
    assert start_after(segments, log, Limits(-1, 60)) == 0
    assert start_after(segments, log, Limits(-1, 41)) == 0
    assert start_after(segments, log, Limits(-1, 40)) == 20
    assert start_after(segments, log, Limits(-1, 0)) == 60
    assert start_after(segments, log, Limits(-1, 0), high_watermark=40) == 40


def test_size_counts_finished_segments_alone():
    """A retried copy does not make the log look larger (KAFKA-17062)."""
    states = [each for each in SegmentState if each.value != 1]
    tries = [remote(0, 20, state=state, number=state) for state in states]
    assert start_after(tries, local(40, first=20), Limits(-1, 20)) == 0
    assert remote_size_bytes([*tries, remote(20, 40)]) == 20


def test_overlapping_segments_count_once_and_go_with_the_log_start():
    """Of two leaders that rolled at different offsets (KAFKA-16511)."""
    segments = [remote(0, 20, number=1), remote(10, 30, number=2), remote(0, 10, number=3)]
    log = local(40, first=30)
    found = whole(segments, log, ONE_EPOCH, 0)
    assert [each[:3] for each in found] == [
        (0, 10, 10),
        (10, 20, 10),
        (20, 30, 10),
        (30, 40, 10),
    ]
    assert start_after(segments, log, Limits(-1, 30)) == 10
    assert to_remove(segments, ONE_EPOCH, 10) == [segments[2].segment_id]
    assert to_remove(segments, ONE_EPOCH, 30) == [each.segment_id for each in segments]


def test_age_goes_by_the_newest_record_and_by_the_copy_where_none_has_a_time():
    old = remote(0, 10, newest_ms=100)
    timeless = remote(10, 20, newest_ms=-1)._replace(event_ms=500)
    log = local(30, first=20, newest_ms=900)
    for now_ms, expected in ((149, 0), (150, 0), (151, 10), (550, 10), (551, 20), (950, 20)):
        assert start_after([old, timeless], log, Limits(50, -1), now_ms=now_ms) == expected
    assert start_after([old, timeless], log, Limits(50, -1), now_ms=951) == 30
    assert start_after([old], log, NO_LIMIT, now_ms=10**15) == 0


def test_one_clock_that_runs_ahead_expires_nothing_early():
    assert trusted_now_ms(10**15, 500) == trusted_now_ms(500, 10**15) == 500


def test_segments_that_were_cut_are_removed_and_others_are_not():
    of = lineage((0, 0), (3, 15))
    cut, partly = remote(20, 30, (1, 20), number=1), remote(10, 20, (0, 10), number=2)
    assert to_remove([cut, partly, remote(0, 10, number=3)], of, 0) == [cut.segment_id]
    started = cut._replace(state=SegmentState.COPY_SEGMENT_STARTED)
    assert to_remove([started], of, 100) == []


def test_a_segment_that_was_cut_does_not_count():
    found = whole([remote(20, 30, (1, 20))], local(40), lineage((0, 0), (3, 15)), 0)
    assert found == [Stretch(0, 40, 40, 0)]


OFFSETS = st.integers(0, 30)
SIZES = st.integers(1, 9)


@given(
    st.lists(st.tuples(OFFSETS, SIZES, st.sampled_from(SegmentState)), max_size=8),
    st.lists(OFFSETS, min_size=1, max_size=4, unique=True),
    OFFSETS, OFFSETS, st.integers(0, 40),
)  # fmt: skip
def test_what_stays_is_as_much_as_the_limit_says(drawn, ends, first, log_start, most_bytes):
    """A byte an offset: retention by size leaves at least the limit, and less than the limit and
    one segment."""
    segments = [
        remote(start, start + size, state=state, number=number)
        for number, (start, size, state) in enumerate(drawn)
    ]
    log = [each for each in local(*sorted(each + 1 for each in ends)) if each.end_offset > first]
    finished = [each for each in segments if each.is_finished]
    held = {at for each in finished for at in range(each.start_offset, each.end_offset)}
    held |= {at for each in log for at in range(each.start_offset, each.end_offset)}
    held = {at for at in held if at >= log_start}
    found = whole(segments, log, ONE_EPOCH, log_start)
    assert {at for each in found for at in range(each.first, each.end)} == held
    assert sum(each.byte_size for each in found) == len(held)
    start = log_start_after(found, log_start, Limits(-1, most_bytes), 100, 0)
    left = len([at for at in held if at >= start])
    assert left >= min(most_bytes, len(held))
    for following in [each for each in found if each.first >= start][:1]:
        assert left - following.byte_size < most_bytes


def test_nothing_above_the_high_watermark_goes():
    segments: list[RemoteSegment] = []
    log = local(10, 20, 30)
    assert start_after(segments, log, Limits(0, 0), high_watermark=19, now_ms=9) == 10
    assert start_after(segments, log, Limits(0, 0), high_watermark=0, now_ms=9) == 0


@given(st.integers(0, 50), st.integers(0, 60))
def test_of_a_long_log_little_is_looked_at_where_age_alone_is_limited(now_ms, most_ms):
    asked = []

    def segments():
        for at in range(1_000):
            asked.append(at)
            yield remote(at * 10, at * 10 + 10, number=at, newest_ms=at)

    found = stretches(segments(), local(10_010, first=10_000, newest_ms=99), ONE_EPOCH, 0)
    start = log_start_after(found, 0, Limits(most_ms, -1), 10_010, now_ms)
    gone = max(0, now_ms - most_ms)
    assert start == 10 * gone
    assert len(asked) <= gone + 3
