"""What readers of a slow store have under way is bounded in bytes, and all of it comes in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.blocks import Blocks
from anabranch.core.diskless.read_lanes import MOST_LANE_BYTES, MOST_READ_BYTES
from anabranch.core.diskless.reader import DisklessReader
from anabranch.core.diskless.reads import BytesOf, FarRead
from anabranch.core.diskless.rows import LogKey
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(b"t" * 16), 0)
LARGEST = 3 << 20
"""Of a range: larger than a read, and less than all reads may be."""

RANGES = st.lists(
    st.tuples(
        st.sampled_from(["first", "second", "third"]),
        st.integers(0, 64).map(lambda number: number * LARGEST),
        st.integers(1, LARGEST),
    ),
    max_size=30,
)


class Reads:
    """A reader whose reads a test ends one by one."""

    def __init__(self):
        self.effects = []
        self.reader = DisklessReader(self.effects, Blocks(1))
        self.under_way = []
        self.read = []
        self.served = []

    def bring(self, ranges, *, is_far=False):
        ask = BytesOf(KEY, tuple(ranges), is_far)
        self.reader.bring([FarRead(ask)], lambda: self.served.append(ask))
        self.send()

    def send(self):
        self.reader.send()
        self.under_way += self.effects
        self.effects.clear()

    def end(self, number):
        effect = self.under_way.pop(number)
        self.read += [(effect.object_key, *each) for each in effect.ranges]
        self.reader.ended(effect)
        self.send()


def size_of(effect):
    return sum(length for _, length in effect.ranges)


@given(asked=st.lists(st.tuples(RANGES, st.booleans()), max_size=6), data=st.data())
def test_reads_under_way_are_bounded_in_bytes_and_all_end(asked, data):
    reads = Reads()
    for ranges, is_far in asked:
        reads.bring(ranges, is_far=is_far)
    while reads.under_way:
        for is_far in (False, True):
            lane = [each for each in reads.under_way if each.is_far is is_far]
            assert sum(map(size_of, lane)) <= MOST_LANE_BYTES
        assert all(
            size_of(each) <= MOST_READ_BYTES or len(each.ranges) == 1 for each in reads.under_way
        )
        reads.end(data.draw(st.integers(0, len(reads.under_way) - 1)))
    assert len(reads.served) == len(asked)
    for ranges, _ in asked:
        for key, position, length in ranges:
            assert any(
                key == found and start <= position and position + length <= start + size
                for found, start, size in reads.read
            )


def test_reads_that_would_bring_too_much_wait_for_earlier_ones():
    reads = Reads()
    part, every = MOST_READ_BYTES, 2 * MOST_READ_BYTES  # too far apart to be one read
    reads.bring([("object", number * every, part) for number in range(6)])
    assert sum(map(size_of, reads.under_way)) == MOST_LANE_BYTES
    reads.end(0)
    assert sum(map(size_of, reads.under_way)) == MOST_LANE_BYTES


def test_what_lies_side_by_side_is_read_in_parts():
    reads = Reads()
    part = MOST_READ_BYTES // 4
    reads.bring([("object", number * part, part) for number in range(16)])
    assert [each.ranges for each in reads.under_way] == [
        ((number * MOST_READ_BYTES, MOST_READ_BYTES),) for number in range(4)
    ]


def test_a_long_object_does_not_hold_up_a_short_one():
    reads = Reads()
    part = MOST_READ_BYTES
    reads.bring([("long", number * part, part) for number in range(32)])
    reads.bring([("short", 0, 100)])
    reads.end(0)
    reads.end(0)
    assert any(each.object_key == "short" for each in reads.under_way)
