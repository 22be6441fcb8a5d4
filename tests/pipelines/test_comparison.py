"""Replicas compared batch by batch: whatever was changed in one of them is told with its offset."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.comparison import (
    BEHIND,
    BYTES,
    CORRUPT,
    MISSING,
    MOST_TOLD,
    ReplicaEnds,
    compare,
)


class Copy:
    """A replica in memory, read in parts of at most `part` batches."""

    def __init__(self, broker_id, batches, part=3, ends_at=None):
        self.broker_id = broker_id
        self.batches = batches
        self.part = part
        self.ends_at = ends_at

    async def read(self, offset):
        if self.ends_at is not None and offset >= self.ends_at:
            raise ReplicaEnds(BEHIND, f"gives out offsets below {self.ends_at} only")
        coming = [each for each in self.batches if read_header(each).next_offset > offset]
        return b"".join(coming[: self.part])


def batch(offset, count=2, epoch=0, text=b"v"):
    records = [Record(offset + each, 1, None, text) for each in range(count)]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=epoch))


def found(*copies, start=0, until=20):
    return asyncio.run(compare(copies, start, until))


BATCHES = [batch(each * 2) for each in range(10)]


@given(st.lists(st.integers(1, 10), min_size=2, max_size=4), st.integers(0, 19))
def test_equal_replicas_are_equal_however_they_come(parts, start):
    done = found(*(Copy(each, BATCHES, part) for each, part in enumerate(parts)), start=start)
    assert (done.differing, done.differences) == (0, [])
    assert done.bytes_read >= len(parts) * sum(map(len, BATCHES[start // 2 :]))


@given(
    st.integers(0, 9), st.integers(1, 10), st.integers(1, 10),
    st.sampled_from(["other", "epoch", "flipped", "missing"]),
)  # fmt: skip
def test_one_changed_batch_is_the_one_difference(place, part, other_part, change):
    changed = list(BATCHES)
    if change == "other":
        changed[place] = batch(place * 2, text=b"w")
    elif change == "epoch":
        changed[place] = batch(place * 2, epoch=3)
    elif change == "flipped":
        changed[place] = changed[place][:-1] + bytes([changed[place][-1] ^ 1])
    else:
        del changed[place]
    done = found(Copy(1, BATCHES, part), Copy(2, changed, other_part), Copy(3, BATCHES, part))
    (difference,) = done.differences
    kinds = {"other": BYTES, "epoch": BYTES, "flipped": CORRUPT, "missing": MISSING}
    assert (difference.offset, difference.kind) == (place * 2, kinds[change])
    assert done.differing == 1
    if change in ("flipped", "missing"):
        assert difference.brokers == (2,)


@given(st.integers(0, 20), st.integers(0, 9))
def test_a_batch_between_two_ranges_is_told_of_once(edge, place):
    changed = [*BATCHES]
    changed[place] = batch(place * 2, text=b"w")
    copies = Copy(1, BATCHES), Copy(2, changed)
    first = asyncio.run(compare(copies, 0, edge))
    second = asyncio.run(compare(copies, edge, 20, from_middle=edge == 0))
    assert first.differing + second.differing == 1


def test_a_replica_that_is_behind_is_not_one_that_differs():
    done = found(Copy(1, BATCHES), Copy(2, BATCHES, ends_at=6), Copy(3, BATCHES))
    (behind,) = done.differences
    assert (behind.kind, behind.brokers, done.differing) == (BEHIND, (2,), 0)


def test_the_others_are_compared_when_one_ends():
    changed = [*BATCHES[:9], batch(18, text=b"w")]
    done = found(Copy(1, BATCHES), Copy(2, BATCHES, ends_at=6), Copy(3, changed))
    assert [each.kind for each in done.differences] == [BEHIND, BYTES]


@pytest.mark.parametrize("count", [1, 2])
def test_a_replica_of_another_log_differs_everywhere(count):
    other = [batch(each, count=1, text=b"w") for each in range(20)]
    done = found(Copy(1, BATCHES), *(Copy(2 + each, other) for each in range(count)))
    assert done.differing >= 10


def test_a_replica_that_ends_is_named_behind_many_differences():
    ours = [batch(each * 2) for each in range(300)]
    theirs = [batch(each * 2, text=b"w") for each in range(300)]
    copies = Copy(1, ours), Copy(2, theirs), Copy(3, ours, ends_at=300)
    done = found(*copies, until=600)
    assert done.differing == 300
    assert [each.brokers for each in done.differences if each.kind == BEHIND] == [(3,)]
    assert len(done.differences) == MOST_TOLD + 1
