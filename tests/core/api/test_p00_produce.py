"""Produce: acks, min.insync.replicas, refusals and their order (R5)."""

import pytest
from tests.core.api.in_memory_node import Denying, InMemoryNode, batch

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.errors import ErrorCode
from anabranch.core.log.sequence_gaps import GAP_MS
from anabranch.core.metadata.image import MetadataDelta
from anabranch.core.outcome import Hangup, NoAnswer, Wait
from anabranch.core.types import TopicPartition
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def request(records=None, *, topic="t", index=0, acks=1, timeout_ms=1000, topic_id=None, more=()):
    parts = [PartitionProduceData(index=index, records=records), *more]
    named = {"name": topic} if topic_id is None else {"topic_id": topic_id}
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(partition_data=parts, **named)],
    )


def only(response):
    [topic] = response.responses
    [answer] = topic.partition_responses
    return answer


def produce(node, records=None, version=9, **how):
    client_id = how.pop("client_id", "tests")
    return node.send(request(records or batch(), **how), version, client_id=client_id)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(node, version):
    topic_id = node.topic()
    response = produce(node, batch(3), version, topic_id=topic_id if version > 12 else None)
    answer = only(response)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert node.replica().high_watermark == 3


def test_the_next_batch_follows(node):
    node.topic()
    produce(node, batch(3))
    answer = only(produce(node, batch(2)))
    assert (answer.base_offset, answer.log_start_offset) == (3, 0)
    assert answer.log_append_time_ms == -1


def test_log_append_time_is_told(node):
    node.topic(configs={"message.timestamp.type": "LogAppendTime"})
    assert only(produce(node)).log_append_time_ms == node.now_ms


def test_acks_0_has_no_answer(node):
    node.topic()
    assert isinstance(produce(node, acks=0), NoAnswer)
    assert node.replica().high_watermark == 1


def test_an_error_under_acks_0_closes_the_connection(node):
    outcome = produce(node, acks=0)
    assert isinstance(outcome, Hangup)
    assert "t-0 UNKNOWN_TOPIC_OR_PARTITION" in outcome.why


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_nothing_is_appended(node, acks):
    node.topic()
    answer = only(produce(node, acks=acks))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert (answer.base_offset, answer.log_start_offset) == (-1, -1)
    assert node.replica().log.end_offset == 0


MATRIX = [
    # acks, min.insync.replicas, replicas, isr -> error, appended, committed
    (0, 1, (1,), (1,), None, True, True),
    (1, 1, (1,), (1,), 0, True, True),
    (-1, 1, (1,), (1,), 0, True, True),
    (0, 2, (1, 2), (1,), None, True, False),
    (1, 2, (1, 2), (1,), 0, True, False),
    (-1, 2, (1, 2), (1,), ErrorCode.NOT_ENOUGH_REPLICAS, False, False),
    (0, 1, (1, 2), (1,), None, True, True),
    (1, 1, (1, 2), (1,), 0, True, True),
    (-1, 1, (1, 2), (1,), 0, True, True),
    (0, 2, (1,), (1,), None, True, True),
    (1, 2, (1,), (1,), 0, True, True),
    (-1, 2, (1,), (1,), 0, True, True),
    (-1, 3, (1, 2, 3), (1, 2), ErrorCode.NOT_ENOUGH_REPLICAS, False, False),
    (1, 3, (1, 2, 3), (1, 2), 0, True, False),
]


@pytest.mark.parametrize(
    ("acks", "minimum", "replicas", "isr", "error", "appended", "committed"), MATRIX
)
def test_acks_by_min_insync_replicas(acks, minimum, replicas, isr, error, appended, committed):
    """R5: min.insync.replicas counts only under acks=all, and never above the replica count."""
    node = InMemoryNode(brokers=replicas)
    node.topic(replicas=replicas, isr=isr, configs={"min.insync.replicas": str(minimum)})
    outcome = produce(node, acks=acks)
    if error is None:
        assert isinstance(outcome, NoAnswer)
    else:
        assert only(outcome).error_code == error
    assert node.replica().log.end_offset == int(appended)
    assert node.replica().high_watermark == int(committed)


def test_acks_all_waits_for_the_in_sync_replicas():
    """R5."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    wait = produce(node, acks=-1)
    assert isinstance(wait, Wait)
    place = TopicPartition("t", 0)
    assert list(node.broker.woken_by([place])) == [place]
    assert node.poll(wait) is None
    node.replica().follower_fetched(2, 1)
    assert list(node.broker.woken_by([place])) == [place, *wait.keys]
    answer = only(node.poll(wait))
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_who_waits_does_not_hold_the_records():
    """They are appended: thousands may wait, each with megabytes in its frame."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = produce(node, acks=-1)
    assert isinstance(wait, Wait)
    node.frame.clear()  # a BufferError where somebody holds a slice


def test_acks_1_does_not_wait():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    assert only(produce(node, acks=1)).error_code == 0


def test_acks_all_times_out():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = produce(node, acks=-1, timeout_ms=500)
    assert wait.deadline_ms == node.now_ms + 500
    answer = only(node.expire(wait))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_an_isr_that_shrinks_after_the_append_is_told():
    """R5: NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    wait = produce(node, acks=-1)
    replica = node.replica()
    replica.high_watermark = 1
    node.change("t", isr=(1,))
    answer = only(node.poll(wait))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_the_high_watermark_stands_still_under_the_minimum():
    """R5, KIP-966."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2), configs={"min.insync.replicas": "2"})
    wait = produce(node, acks=-1)
    node.change("t", isr=(1,))
    assert node.poll(wait) is None
    assert node.replica().high_watermark == 0


def test_losing_leadership_ends_the_wait():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = produce(node, version=10, acks=-1)
    node.change("t", leader=2, leader_epoch=1)
    response = node.poll(wait)
    assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(response).current_leader.leader_id == 2
    assert [each.port for each in response.node_endpoints] == [9094]


def test_deleting_the_topic_ends_the_wait():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    wait = produce(node, acks=-1)
    node.remove("t")
    assert only(node.poll(wait)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_only_flushed_records_are_acknowledged(node, acks):
    node.topic(configs={"flush.messages": "1"})
    wait = produce(node, acks=acks)
    assert isinstance(wait, Wait)
    assert node.broker.unsynced == {TopicPartition("t", 0)}
    assert node.poll(wait) is None
    assert node.replica().high_watermark == 0
    assert node.sync()
    assert only(node.poll(wait)).error_code == 0
    assert node.replica().high_watermark == 1


def test_a_follower_refuses_and_names_the_leader():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2), leader=2)
    response = produce(node, version=10)
    answer = only(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
    assert [(each.node_id, each.port) for each in response.node_endpoints] == [(2, 9094)]


@pytest.mark.parametrize("leader", [-1, 2])
def test_of_a_partition_that_nobody_leads_no_leader_is_told(leader):
    """R20: librdkafka's process ends by a leader of -1 beside one that it is told the place of."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2), leader=2)
    node.change("t", leader=leader, leader_epoch=1)
    answer = only(produce(node, version=10))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    told = answer.current_leader
    assert (told.leader_id, told.leader_epoch) == ((-1, -1) if leader < 0 else (2, 1))


def test_a_partition_of_another_broker():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(2,), leader=2)
    assert only(produce(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_unknown_topics_and_partitions(node):
    node.topic()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(produce(node, index=5)).error_code == unknown
    assert only(produce(node, topic="nowhere")).error_code == unknown
    assert only(produce(node, version=13, topic_id=bytes([9]) * 16)).error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID
    )


def test_exactly_one_batch_a_partition(node):
    node.topic()
    answer = only(produce(node, batch() + batch()))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.log_start_offset == -1
    assert only(node.send(request(b""), 9)).error_code == ErrorCode.INVALID_RECORD
    assert only(node.send(request(None), 9)).error_code == ErrorCode.INVALID_RECORD
    assert only(produce(node, batch()[:-1])).error_code == ErrorCode.INVALID_RECORD


def test_old_formats_are_refused(node):
    node.topic()
    old = batch()
    old[16] = 1
    assert only(produce(node, old)).error_code == ErrorCode.INVALID_RECORD


def test_bytes_that_no_format_knows_are_told_how(node):
    node.topic()
    strange = batch()
    strange[16] = 3
    answer = only(produce(node, strange))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert answer.error_message == "Invalid magic found in record: 3"


def test_a_bad_checksum_is_refused(node):
    node.topic()
    torn = batch()
    torn[-1] ^= 1
    assert only(produce(node, torn)).error_code == ErrorCode.CORRUPT_MESSAGE


def test_zstd_needs_version_7(node):
    node.topic()
    squeezed = batch(codec=Codec.ZSTD)
    refused = only(produce(node, squeezed, version=6))
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(produce(node, batch(codec=Codec.ZSTD), version=7)).error_code == 0


def test_too_large_a_batch_is_refused(node):
    node.topic(configs={"max.message.bytes": "200"})
    answer = only(produce(node, batch(size=200)))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)


def test_internal_topics_are_for_coordinators(node):
    node.topic("__consumer_offsets")
    answer = only(produce(node, topic="__consumer_offsets"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    admin = only(produce(node, topic="__consumer_offsets", client_id="__admin_client"))
    assert admin.error_code == 0


def test_a_batch_that_comes_again_is_answered_with_its_first_place(node):
    node.topic()
    known = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    produce(node, batch(2, **known))
    answer = only(produce(node, batch(2, **known)))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert node.replica().log.end_offset == 2


def test_a_gap_in_sequence_numbers_is_refused(node):
    node.topic()
    produce(node, batch(2, producer_id=5, producer_epoch=0, base_sequence=0))
    later = batch(producer_id=5, producer_epoch=0, base_sequence=7)
    answer = only(produce(node, later))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.base_offset, answer.log_start_offset) == (-1, -1)
    node.broker.steady_ms += GAP_MS
    answer = only(produce(node, later))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (answer.base_offset, answer.log_start_offset) == (-1, 0)


def test_a_transactional_batch_needs_a_name(node):
    node.topic()
    transactional = batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    nameless = only(produce(node, transactional))
    assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_each_partition_has_its_own_fate(node):
    node.topic(partitions=2)
    more = [
        PartitionProduceData(index=7, records=batch()),
        PartitionProduceData(index=1, records=batch()),
    ]
    response = node.send(request(batch(), more=more), 9)
    codes = [each.error_code for each in response.responses[0].partition_responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_write_on_the_topic_is_asked_before_it_is_looked_up():
    denied = Denying((Operation.WRITE, ResourceType.TOPIC, "nowhere"))
    node = InMemoryNode(authorizer=denied)
    answer = only(produce(node, topic="nowhere"))
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_append_wakes_whoever_waits_for_the_partition(node):
    node.topic()
    produce(node)
    assert TopicPartition("t", 0) in node.broker.changed


def test_r19_every_batch_that_is_refused_is_counted():
    node = InMemoryNode(brokers=(1, 2))
    assert node.broker.failed_produces == {"": 0}, "the metric is there before the first refusal"
    node.topic(replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
    produce(node, acks=-1)
    produce(node, acks=1)
    corrupt = batch()
    corrupt[-1] ^= 1
    produce(node, corrupt)
    produce(node, topic="nowhere")
    produce(node, topic="elsewhere")
    assert node.broker.failed_produces == {"t": 2, "": 2}
    gone = node.broker.image.topic("t")
    node.remove("t")
    delta = MetadataDelta(deleted_topics=(gone,))
    node.broker.take_image(delta, delta, node.now_ms)
    assert node.broker.failed_produces == {"": 2}, "a topic that is gone has no series"
