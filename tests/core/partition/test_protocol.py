"""A partition of another kind is served by the same handlers, which know nothing of it."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from tests.core.api.in_memory_node import InMemoryNode, batch

from anabranch.core.errors import ErrorCode
from anabranch.core.log.lookup import TimestampOffset
from anabranch.core.log.producers import ProducerStates
from anabranch.core.outcome import Wait
from anabranch.core.partition.protocol import ACKS_ALL, UNKNOWN_OFFSET, Partition
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import patch, read_header, walk
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PLACE = TopicPartition("t", 0)
MOST_LINES = 40


class LatePartition(Partition):
    """Its batches get their offsets all at once, in `commit`, as a coordinator elsewhere gives."""

    topic_partition, path, producers = PLACE, "elsewhere", ProducerStates()
    leader_id = is_leader = True
    leader_epoch = led_from_epoch = start_offset = end_offset = appended_bytes = 0

    def __init__(self, topic_id):
        self.topic_id, self.batches, self.waiting = topic_id, [], []

    @property
    def high_watermark(self):
        return self.end_offset

    def append(self, records, *, required_acks, now_ms, client=True):
        late = dict.fromkeys(("first_offset", "last_offset", "log_append_time_ms"), UNKNOWN_OFFSET)
        self.waiting.append(SimpleNamespace(**late, start_offset=0, records=records))
        return self.waiting[-1]

    def commit(self):
        for ticket in self.waiting:
            patch(ticket.records, 0, self.end_offset, 0)
            ticket.first_offset, header = self.end_offset, read_header(ticket.records)
            ticket.last_offset, self.end_offset = header.last_offset, header.next_offset
            self.appended_bytes += len(ticket.records)
        self.batches, self.waiting = self.batches + self.waiting, []

    def acknowledged(self, ticket, led_from_epoch, acks=ACKS_ALL):
        return None if ticket.first_offset == UNKNOWN_OFFSET else ErrorCode.NONE

    def read(self, offset, *, max_bytes, upto, at_least_one):
        return b"".join(b.records for b in self.batches if offset <= b.last_offset < upto)

    epoch_of = lambda self, offset: 0  # noqa: E731
    end_offset_for_epoch = lambda self, epoch: (0, self.end_offset)  # noqa: E731
    offset_for_timestamp = lambda self, timestamp, since: TimestampOffset(timestamp, 1, 0)  # noqa: E731
    delete_before = lambda self, offset: setattr(self, "start_offset", offset)  # noqa: E731


@pytest.fixture
def node():
    """A node that hosts one, and no replica."""
    node = InMemoryNode(brokers=(1, 2))
    topic_id = node.topic(replicas=(2,), leader=2)
    node.broker.partitions.host(LatePartition(topic_id))
    return node


def produce(node, count, acks):
    data = PartitionProduceData(index=0, records=batch(count))
    topic = TopicProduceData(name="t", partition_data=[data])
    return node.send(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), 11)


def fetch(node, offset, max_wait_ms=500):
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[part])
    return node.send(
        FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=[topic]), 12
    )


def read(response):
    """(error, base offsets) of the one partition in a response."""
    answer = response.responses[0].partitions[0]
    return answer.error_code, [header.base_offset for _, header in walk(answer.records)]


def test_a_kind_of_partition_is_few_lines():
    assert len(inspect.getsource(LatePartition).splitlines()) < MOST_LINES


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
def test_a_produce_request_waits_for_offsets_that_come_late(node, acks):
    first, second = produce(node, 2, acks), produce(node, 1, acks)
    for wait in (first, second):
        assert isinstance(wait, Wait)
        assert node.poll(wait) is None
    node.replica().commit()
    node.broker.changed[PLACE] = None
    answers = [node.poll(each).responses[0].partition_responses[0] for each in (first, second)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 2)]


def test_time_is_over_before_offsets_come(node):
    wait = produce(node, 1, ACKS_ALL)
    answer = node.expire(wait).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, UNKNOWN_OFFSET)


def test_without_acknowledgement_nothing_is_waited_for(node):
    assert not isinstance(produce(node, 1, 0), Wait)


def test_what_was_committed_is_read_and_a_long_poll_hears_of_it(node):
    wait = fetch(node, 0)
    assert isinstance(wait, Wait)
    produce(node, 2, 1)
    assert node.poll(wait) is None
    node.replica().commit()
    assert read(node.poll(wait)) == (0, [0])
    produce(node, 1, 1)
    node.replica().commit()
    assert read(fetch(node, 1)) == (0, [0, 2])
    assert read(fetch(node, 9)) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


def test_lookups_and_deletion(node):
    produce(node, 3, 1)
    node.replica().commit()

    def listed(timestamp):
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[part])
        return node.send(ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions[0].offset

    assert [listed(each) for each in (-2, 5, -1)] == [0, 1, 3]
    part = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[part])])
    assert node.send(asked, 4).topics[0].partitions[0].end_offset == 3
    part = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name="t", partitions=[part])
    result = node.send(DeleteRecordsRequest(topics=[topic], timeout_ms=1), 2).topics[0].partitions
    assert (result[0].error_code, result[0].low_watermark) == (0, 2)
    assert listed(-2) == 2
