"""What is compacted next: by the settings of the topic, and only what is tiered."""

from __future__ import annotations

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.remote.compacted_mark import Mark, encode_mark
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.tiering.compaction_plan import (
    Compactable,
    Pass,
    Tiered,
    grouped,
    is_worth_it,
    next_pass,
    tiles,
)
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(15) + b"\1"), 0)
FOR_EVER = 2**63 - 1
NOW_MS = 1_000_000


def segment(start: int, end: int, size: int = 100, **fields) -> RemoteSegment:
    number = fields.pop("number", start + 1)
    mark = fields.pop("mark", None)
    fields = {"state": SegmentState.COPY_SEGMENT_FINISHED, **fields}
    return RemoteSegment(
        SegmentId(number.to_bytes(16, "big")), KEY, start, end, fields.pop("max_timestamp", 1000),
        (EpochStart(0, start),), size, 1, 0, custom_metadata=encode_mark(mark) if mark else b"",
        **fields,
    )  # fmt: skip


def wanted(**settings) -> Compactable:
    values = {"least_ratio": 0.5, "least_lag_ms": 0, "most_lag_ms": FOR_EVER, **settings}
    return Compactable(KEY, delete_retention_ms=0, most_bytes=1000, **values)


def plan(*segments: RemoteSegment, start: int = 0, **settings) -> tuple[Pass, bool]:
    held = Tiered(LogState(start, 1000, 0, 1000), segments, NOW_MS)
    found = next_pass(held, wanted(**settings))
    return found, is_worth_it(found, wanted(**settings))


def test_what_was_never_compacted_is_dirty():
    found, is_due = plan(segment(0, 5), segment(5, 9))
    assert (found.dirty_bytes, found.clean_bytes, found.ratio, is_due) == (200, 0, 1.0, True)
    assert (found.mark, found.forgets) == (Mark(1, 9), True)


def test_nothing_is_due_where_nothing_is_tiered():
    found, is_due = plan()
    assert (found.segments, found.ratio, is_due) == ((), 0.0, False)


def test_the_dirty_part_of_all_decides():
    clean = segment(0, 5, mark=Mark(3, 5))
    assert not plan(clean)[1]
    assert not plan(clean, segment(5, 9))[1], "as much is clean"
    found, is_due = plan(clean, segment(5, 9), segment(9, 12))
    assert is_due
    assert [each.start_offset for each in found.segments] == [0, 5, 9]
    assert found.mark == Mark(4, 12)


def test_segments_that_a_pass_left_alone_are_clean_too():
    found, _ = plan(segment(0, 5), segment(5, 9, mark=Mark(1, 9)), segment(9, 12))
    assert (found.clean_bytes, found.dirty_bytes) == (200, 100)


def test_young_records_wait_and_what_comes_after_them():
    young = segment(5, 9, max_timestamp=NOW_MS - 99)
    found, _ = plan(segment(0, 5), young, segment(9, 12), least_lag_ms=100)
    assert found.mark.upto == 5
    found, _ = plan(segment(0, 5), young, segment(9, 12), least_lag_ms=99)
    assert found.mark.upto == 12


def test_a_record_that_has_waited_long_enough_makes_a_pass():
    clean = segment(0, 5, size=900, mark=Mark(1, 5), max_timestamp=NOW_MS - 500)
    assert not plan(clean, segment(5, 9), most_lag_ms=500)[1]
    assert plan(clean, segment(5, 9), most_lag_ms=499)[1]


def test_what_is_deleted_and_what_follows_a_gap_is_left_out():
    found, _ = plan(segment(0, 5), segment(5, 9), segment(10, 12), start=5)
    assert [each.start_offset for each in found.segments] == [5]


def test_tombstones_stay_while_something_waits_for_its_removal():
    for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_STARTED):
        other = segment(0, 5, number=99, state=state)
        found, _ = plan(other, segment(0, 5), segment(5, 9))
        assert not found.forgets
        assert [each.start_offset for each in found.segments] == [0, 5]


def test_tombstones_stay_while_a_segment_lies_below_the_start():
    """Its removal has not begun, and a restored coordinator may not know of the start."""
    assert not plan(segment(0, 5), segment(5, 9), start=5)[0].forgets
    assert plan(segment(0, 5), segment(5, 9), start=4)[0].forgets


def test_no_pass_ends_before_a_segment_that_may_abort_what_it_read():
    """Records of an aborted transaction would take the place of older ones."""
    aborts = segment(5, 9, max_timestamp=NOW_MS - 99, has_aborted=True)
    found, is_due = plan(segment(0, 5), aborts, least_lag_ms=100)
    assert (found.segments, found.dirty_bytes, is_due) == ((), 0, False)
    found, is_due = plan(segment(0, 5), aborts, least_lag_ms=99)
    assert (found.mark.upto, is_due) == (9, True)
    assert not plan(segment(0, 5), segment(6, 9, has_aborted=True))[1]


def test_neighbours_become_one_while_they_fit():
    all_of_it = [segment(at, at + 5, size=400) for at in range(0, 30, 5)]
    sizes = [len(each) for each in grouped(all_of_it, 1000)]
    assert sizes == [2, 2, 2]
    assert [len(each) for each in grouped(all_of_it, 1)] == [1] * 6
    far = segment(2**31 + 5, 2**31 + 9, size=1)
    assert [len(each) for each in grouped([segment(0, 2**31 + 5, size=1), far], 1000)] == [1, 1]


def test_segments_tile_another_where_each_offset_is_in_one():
    whole, parts = segment(0, 10), [segment(0, 5), segment(5, 10)]
    assert tiles(whole, parts)
    for wrong in (parts[:1], parts[1:], [segment(0, 6), parts[1]], [parts[0], segment(6, 10)],
                  [*parts, segment(10, 11)], []):  # fmt: skip
        assert not tiles(whole, wrong)
