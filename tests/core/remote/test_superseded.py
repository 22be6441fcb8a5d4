"""After a restore each offset is in a segment, and segments that were replaced are removed."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.compacted_mark import NO_MARK, Mark, encode_mark, mark_of
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.superseded import without_superseded
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(15) + b"\1"), 0)
FINISHED, REMOVED = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED


def segment(number: int, start: int, end: int, generation: int = 0, upto: int = 0) -> RemoteSegment:
    mark = encode_mark(Mark(generation, upto)) if generation else b""
    return RemoteSegment(
        SegmentId(number.to_bytes(16, "big")), KEY, start, end, 1, (EpochStart(0, start),), 10, 1,
        0, state=FINISHED, custom_metadata=mark,
    )  # fmt: skip


def left(*segments: RemoteSegment) -> list[int]:
    """The numbers of those that count."""
    found = without_superseded(segments)
    assert [each.segment_id for each in found] == [each.segment_id for each in segments]
    return [each.segment_id[-1] for each in found if each.is_finished]


def test_a_segment_says_which_pass_has_made_it():
    assert mark_of(segment(1, 0, 5, 3, 40)) == Mark(3, 40)
    for other in (b"", b"compacted 1", b"compacted x 5", b"store-made 1 2"):
        assert mark_of(segment(1, 0, 5)._replace(custom_metadata=other)) == NO_MARK


def test_segments_that_were_replaced_are_removed():
    assert left(segment(1, 0, 5), segment(2, 0, 10, 1, 10), segment(3, 5, 10)) == [2]


def test_what_a_pass_has_not_changed_stays():
    assert left(segment(1, 0, 5), segment(2, 5, 10), segment(3, 5, 10, 1, 10)) == [1, 3]


def test_a_part_of_a_pass_removes_what_it_has():
    assert left(segment(1, 0, 5), segment(2, 0, 10, 1, 20), segment(3, 5, 15)) == [2, 3]


def test_the_later_pass_counts():
    assert left(
        segment(1, 0, 10, 1, 10), segment(2, 0, 10, 2, 20), segment(3, 10, 20, 1, 20)
    ) == [2, 3]  # fmt: skip


def test_of_two_equal_ones_one_stays():
    assert len(left(segment(1, 0, 10, 1, 10), segment(2, 0, 10, 1, 10))) == 1


def test_segments_of_classic_topics_are_left_alone():
    """They overlap after unclean elections, and leader epochs tell which of them counts."""
    assert left(segment(1, 0, 10), segment(2, 0, 5), segment(3, 0, 10)) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(200))
def test_no_offset_is_lost_whatever_lies_in_the_store(seed):
    random = Random(seed)
    numbers = iter(range(1, 200))
    found = [segment(next(numbers), at, at + 5) for at in range(0, 50, 5)]
    for generation in range(1, 4):
        for _ in range(random.randint(0, 3)):
            cuts = sorted(random.sample(range(0, 55, 5), random.randint(2, 5)))
            for start, end in pairwise(cuts):
                if random.random() < 0.7:
                    found.append(segment(next(numbers), start, end, generation, cuts[-1]))
    found = random.sample(found, len(found))
    kept = [each for each in without_superseded(found) if each.is_finished]
    for offset in range(50):
        before = [e for e in found if e.start_offset <= offset < e.end_offset]
        after = [e for e in kept if e.start_offset <= offset < e.end_offset]
        assert bool(before) == bool(after)
        if before and after:
            newest = max(mark_of(each).generation for each in before)
            assert newest == max(mark_of(each).generation for each in after)
