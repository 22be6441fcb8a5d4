"""Readers of diskless partitions whose segments are compacted meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.api.empty_batches import pieces_past_empty
from anabranch.core.diskless.partition import DisklessPartition
from anabranch.core.diskless.reads import FactsOf, FarRead
from anabranch.core.diskless.rows import LogState
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.batch_filter import rewritten
from anabranch.core.partition.tail import NO_TAIL
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, build_batch

WHOLE = {"max_bytes": 1 << 20, "upto": 1 << 40, "at_least_one": True}


class Tail:
    """Segments that are there, or of which one is gone."""

    def __init__(self, end_offset, pieces=None):
        self.end_offset, self.pieces = end_offset, pieces

    def read(self, offset, **_):
        return self._there()[offset]

    def offset_for_timestamp(self, _timestamp, _first):
        return self._there()[0]

    def max_timestamp_offset(self, _first):
        return self._there()[0]

    def _there(self):
        if self.pieces is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the object is gone")
        return self.pieces


STATE = LogState(0, 20, 100, 10)


def partition_of(state=STATE):
    host = SimpleNamespace(
        broker_id=1, why_off="", now_ms=0, times={(None, None): (1, None)}, passed={}
    )
    topic = SimpleNamespace(name="t", topic_id=TopicId(bytes(15) + b"\1"), config=None)
    partition = DisklessPartition(host, topic, 0)
    host.times = {(partition.key, None): (1, None), (partition.key, 5): (1, None)}
    partition.take(state)
    return partition


@pytest.mark.parametrize(
    "look",
    [
        lambda partition: partition.read(0, **WHOLE),
        lambda partition: partition.offset_for_timestamp(5),
        lambda partition: partition.max_timestamp_offset(),
    ],
)
def test_a_segment_that_is_gone_is_looked_for_once_more(look):
    partition = partition_of()
    for _ in range(2):
        partition.older = Tail(10)
        with pytest.raises(FarRead) as asked:
            look(partition)
        assert asked.value.ask == FactsOf(partition.key, 10)
        assert partition.older is NO_TAIL
        partition.older = Tail(10)  # the newest facts have it too: it is damaged
        with pytest.raises(ApiError, match="is gone"):
            look(partition)


def test_a_reader_goes_on_with_the_newest_segments():
    partition = partition_of()
    partition.older = Tail(10)
    with pytest.raises(FarRead):
        partition.read(0, **WHOLE)
    partition.older = Tail(10, {0: b"records"})
    assert partition.read(0, **WHOLE) == (b"records",)
    partition.older = Tail(10)
    with pytest.raises(FarRead):
        partition.read(0, **WHOLE)


@pytest.mark.parametrize(
    ("state", "is_asked"),
    [
        (LogState(0, 20, 100, 10), False),
        (LogState(0, 25, 150, 10), False),
        (LogState(0, 20, 60, 10), True),
        (LogState(0, 20, 130, 10), True),
        (LogState(0, 20, 90, 15), True),
    ],
)
def test_segments_that_took_the_place_of_others_are_asked_for(state, is_asked):
    partition = partition_of()
    partition.older = Tail(10, {0: b"records"})
    partition.take(state)
    assert (partition.older is NO_TAIL) == is_asked
    assert partition.state == state


def batch(offset, *, empty=False):
    whole = build_batch([Record(offset, 1, b"k", b"x")], base_offset=offset)
    if not empty:
        return bytes(whole)
    [(_, header)] = walk(whole)
    return bytes(rewritten(header._replace(leader_epoch=0), b"", [], None))


def test_a_consumer_is_led_past_segments_without_a_record():
    partition = partition_of(LogState(0, 20, 100, 4))
    pieces = {at: batch(at, empty=at < 3) for at in range(4)}
    partition.older = Tail(4, pieces)
    how = {"max_bytes": 1 << 20, "at_least_one": True}
    found = pieces_past_empty(partition, (pieces[0],), 20, **how)
    assert found == (pieces[3],)
    assert pieces_past_empty(partition, (pieces[0],), 2, **how) == (pieces[1],)
    rows = (pieces[0], pieces[3])
    assert pieces_past_empty(partition, rows, 20, **how) == rows
    assert pieces_past_empty(partition, (), 20, **how) == ()
