"""A compacted log may hold long runs of batches without records: every client gets past them."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.core.log.batch_filter import rewritten
from anabranch.core.log.log import Log
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch
from anabranch.testing import LocalCluster

SEGMENTS, IN_EACH = 30, 100
"""An answer ends where a segment ends."""
PATIENCE_S = 20.0
AT_ONCE = {"linger.ms": 0, "batch.num.messages": 1}


def empty_batches(first: int, count: int, epoch: int) -> bytearray:
    """What compaction leaves of so many batches of one record each."""
    batches = bytearray()
    for offset in range(first, first + count):
        whole = build_batch([Record(offset, 1, None, b"x")], base_offset=offset)
        header = read_header(whole)._replace(leader_epoch=epoch)
        batches += rewritten(header, b"", [], None)
    return batches


@pytest.fixture
def emptied(monkeypatch):
    """Before the second batch of a topic `t` stand empty ones."""
    append = Log.append_as_leader

    def append_more(self, records, **how):
        if self.topic_partition.topic == "t" and self.end_offset == 1:
            for number in range(SEGMENTS):
                self.roll(how["now_ms"])
                more = empty_batches(1 + number * IN_EACH, IN_EACH, how["leader_epoch"])
                self.append_as_follower(more, now_ms=how["now_ms"])
        return append(self, records, **how)

    monkeypatch.setattr(Log, "append_as_leader", append_more)


def test_a_reader_gets_past_batches_without_records(emptied):
    """With each answer that holds no record librdkafka asks for twice as much; after ten it tells
    the application that a message is too large."""
    with LocalCluster() as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **AT_ONCE})
        for value in (b"before", b"behind"):
            producer.produce("t", value)
        assert producer.flush(PATIENCE_S) == 0
        address = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        reader = Consumer(address)
        reader.assign([TopicPartition("t", 0, 0)])
        came = reader.consume(2, PATIENCE_S)
        reader.close()
    assert [(each.error(), each.value(), each.offset()) for each in came] == [
        (None, b"before", 0),
        (None, b"behind", 1 + SEGMENTS * IN_EACH),
    ]
