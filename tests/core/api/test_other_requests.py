"""DeleteRecords, InitProducerId, OffsetForLeaderEpoch, the Describe requests, telemetry."""

import pytest
from tests.core.api.in_memory_node import FOLDER, Denying, InMemoryNode, batch, broker_image

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import PRODUCER_IDS
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Wait
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from anabranch.core.wire.messages.describe_producers import DescribeProducersRequest
from anabranch.core.wire.messages.describe_producers import TopicRequest as ProducersTopic
from anabranch.core.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from anabranch.core.wire.messages.describe_topic_partitions import TopicRequest as PagedTopic
from anabranch.core.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from anabranch.core.wire.messages.push_telemetry import PushTelemetryRequest


def append(node, count=3, index=0, **how):
    node.replica("t", index).append(batch(count, **how), required_acks=1, now_ms=node.now_ms)


# DeleteRecords


def delete(node, offset, topic="t", index=0, version=2):
    part = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=100
    )
    [answer] = node.send(request, version).topics[0].partitions
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_delete_records_raises_the_log_start(node, version):
    node.topic()
    append(node)
    assert delete(node, 2, version=version) == (0, 2)
    assert node.replica().log.start_offset == 2
    assert delete(node, 1) == (0, 2)
    assert delete(node, -1) == (0, 3)


def test_delete_records_refusals(node):
    node.topic()
    append(node)
    assert delete(node, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(node, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(node, 1, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    node.topic("__consumer_offsets")
    internal = delete(node, 1, topic="__consumer_offsets")
    assert internal == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    node.topic("kept", configs={"cleanup.policy": "compact"})
    assert delete(node, 0, topic="kept") == (ErrorCode.POLICY_VIOLATION, -1)
    node.topic("elsewhere", replicas=(1, 2), leader=2)
    assert delete(node, 0, topic="elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_delete_records_needs_delete():
    node = InMemoryNode(authorizer=Denying((Operation.DELETE, ResourceType.TOPIC, None)))
    assert delete(node, 1) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(node, version):
    request = InitProducerIdRequest(transactional_id=None)
    answers = [node.send(request, version) for _ in range(2)]
    assert [each.producer_id for each in answers] == [1000, 1001]
    assert {(each.error_code, each.producer_epoch) for each in answers} == {(0, 0)}


def test_a_producer_waits_for_the_next_block_of_ids(node):
    node.producer_ids = iter(())
    wait = node.send(InitProducerIdRequest(transactional_id=None), 5)
    assert isinstance(wait, Wait)
    assert wait.keys == (PRODUCER_IDS,)
    assert node.poll(wait) is None
    node.producer_ids = iter((7,))
    assert node.poll(wait).producer_id == 7


def test_a_late_block_of_ids_is_told(node):
    node.producer_ids = iter(())
    wait = node.send(InitProducerIdRequest(transactional_id=None), 5)
    answer = node.expire(wait)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "x", "transaction_timeout_ms": 1000}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_producer_id_refusals(node, fields, code):
    assert node.send(InitProducerIdRequest(**fields), 5).error_code == code


def test_init_producer_id_needs_idempotent_write_or_any_topic():
    idempotent = (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, None)
    any_topic = (Operation.WRITE, ResourceType.TOPIC, None)
    for denied in ((), (idempotent,), (any_topic,), (idempotent, any_topic)):
        node = InMemoryNode(authorizer=Denying(*denied))
        answer = node.send(InitProducerIdRequest(transactional_id=None), 5)
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if len(denied) == 2 else ErrorCode.NONE
        assert answer.error_code == refused


# OffsetForLeaderEpoch


def epoch_end(node, epoch, *, current=-1, index=0, version=4, replica_id=-1):
    part = OffsetForLeaderPartition(
        partition=index, leader_epoch=epoch, current_leader_epoch=current
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    [answer] = node.send(request, version).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


def test_where_an_epoch_ended(node):
    node.topic()
    append(node, 3)
    node.change("t", leader_epoch=4)
    append(node, 2)
    for version in (2, 3, 4):
        assert epoch_end(node, 0, version=version) == (0, 0, 3)
    assert epoch_end(node, 2) == (0, 0, 3)
    assert epoch_end(node, 4) == (0, 4, 5)
    assert epoch_end(node, 5, replica_id=2) == (0, -1, -1)
    assert epoch_end(node, 0, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert epoch_end(node, 0, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(node, 0, index=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_epoch_ends_need_cluster_action_or_describe():
    denied = Denying(
        (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None),
        (Operation.DESCRIBE, ResourceType.TOPIC, "t"),
    )
    node = InMemoryNode(authorizer=denied)
    node.topic()
    assert epoch_end(node, 0) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)


# DescribeLogDirs


def test_log_folders_and_sizes(node):
    node.topic(partitions=2)
    append(node)
    node.broker.volume = lambda folder: (100, 40)
    [folder] = node.send(DescribeLogDirsRequest(topics=None), 4).results
    assert (folder.log_dir, folder.total_bytes, folder.usable_bytes) == (FOLDER, 100, 40)
    sizes = [part.partition_size for part in folder.topics[0].partitions]
    assert sizes == [len(batch(3)), 0]
    wanted = [DescribableLogDirTopic(topic="t", partitions=[1])]
    [folder] = node.send(DescribeLogDirsRequest(topics=wanted), 1).results
    assert [part.partition_index for part in folder.topics[0].partitions] == [1]


def test_an_offline_folder_is_told(node):
    node.broker.partitions.offline_folders.add(FOLDER)
    [folder] = node.send(DescribeLogDirsRequest(topics=None), 4).results
    assert folder.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_log_folders_need_describe_on_the_cluster():
    node = InMemoryNode(authorizer=Denying((Operation.DESCRIBE, ResourceType.CLUSTER, None)))
    response = node.send(DescribeLogDirsRequest(topics=None), 3)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


# DescribeCluster


def test_the_cluster(node):
    image = node.broker.image
    brokers = image.brokers.set(2, broker_image(2, fenced=True, rack="r2"))
    node.broker.image = type(image)(brokers=brokers)
    plain = node.send(DescribeClusterRequest(), 2)
    assert (plain.cluster_id, plain.controller_id, plain.endpoint_type) == (
        "in-memory-cluster-id",
        1,
        1,
    )
    assert [each.broker_id for each in plain.brokers] == [1]
    every = node.send(DescribeClusterRequest(include_fenced_brokers=True), 2).brokers
    assert [(each.broker_id, each.rack, each.is_fenced) for each in every] == [
        (1, None, False),
        (2, "r2", True),
    ]
    asked = node.send(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert asked.cluster_authorized_operations == 0b1111110100000


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_does_not_answer_for_controllers(node, endpoint_type, code):
    response = node.send(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == code


# DescribeProducers


def producers(node, topic="t", index=0):
    wanted = [ProducersTopic(name=topic, partition_indexes=[index])]
    [answer] = node.send(DescribeProducersRequest(topics=wanted), 0).topics[0].partitions
    return answer


def test_producers_of_a_partition(node):
    node.topic()
    append(node, 2, producer_id=5, producer_epoch=1, base_sequence=0)
    [state] = producers(node).active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (5, 1, 1)
    assert state.current_txn_start_offset == -1
    assert producers(node, index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producers_are_told_once(node):
    node.topic(partitions=2)
    wanted = [ProducersTopic(name="t", partition_indexes=each) for each in ([0, 0], [1, 0])]
    [topic] = node.send(DescribeProducersRequest(topics=wanted), 0).topics
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    assert producers(node, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producers(node, "a b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_follower_answers_for_the_producers_of_its_own_log(node):
    """`kafka-transactions … --broker-id N` asks a broker about each partition that it hosts."""
    node.topic(replicas=(1, 2))
    append(node, 2, producer_id=5, producer_epoch=1, base_sequence=0)
    node.change("t", leader=2, leader_epoch=1)
    answer = producers(node)
    assert answer.error_code == ErrorCode.NONE
    assert [each.producer_id for each in answer.active_producers] == [5]
    node.topic("away", replicas=(2, 3), leader=2)
    assert producers(node, "away").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_diskless_partition_has_no_transactions_to_describe(node, monkeypatch):
    """An error would end `kafka-transactions find-hanging --broker-id N` for every partition."""
    node.topic()
    append(node, 2, producer_id=5, producer_epoch=1, base_sequence=0)
    monkeypatch.setattr(type(node.replica()), "knows_producers", False)
    answer = producers(node)
    assert (answer.error_code, answer.active_producers) == (ErrorCode.NONE, [])
    assert "diskless" in answer.error_message


# DescribeTopicPartitions


def page(node, *names, limit=2000, cursor=None):
    request = DescribeTopicPartitionsRequest(
        topics=[PagedTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return node.send(request, 0)


def listed(response):
    return [(topic.name, len(topic.partitions)) for topic in response.topics]


def test_all_pages_together_are_everything(node):
    for name, partitions in (("c", 3), ("a", 2), ("b", 4)):
        node.topic(name, partitions)
    seen, cursor, pages = [], None, 0
    while True:
        response = page(node, limit=2, cursor=cursor)
        seen += [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        pages += 1
        cursor = response.next_cursor
        if cursor is None:
            break
    expected = [("a", 2), ("b", 4), ("c", 3)]
    assert seen == [(name, index) for name, count in expected for index in range(count)]
    assert pages == 5


def test_the_cursor_points_at_the_next_topic(node):
    node.topic("a", 2)
    node.topic("b", 2)
    response = page(node, limit=2)
    assert listed(response) == [("a", 2)]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("b", 0)


def test_the_broker_bounds_the_page():
    node = InMemoryNode(config={"max.request.partition.size.limit": "3"})
    node.topic("a", 5)
    response = page(node, limit=100)
    assert listed(response) == [("a", 3)]
    assert response.next_cursor.partition_index == 3


def test_named_topics_and_their_errors(node):
    node.topic("a")
    response = page(node, "zz", "a", "b d")
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", 0),
        ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert response.topics[0].topic_authorized_operations > 0


def test_bad_cursors(node):
    node.topic("a")
    elsewhere = page(node, "a", cursor=Cursor(topic_name="b", partition_index=0))
    assert [each.error_code for each in elsewhere.topics] == [ErrorCode.INVALID_REQUEST]
    negative = page(node, "a", cursor=Cursor(topic_name="a", partition_index=-1))
    assert [each.error_code for each in negative.topics] == [ErrorCode.INVALID_REQUEST]


def test_what_may_not_be_described_is_refused_by_name_only():
    node = InMemoryNode(authorizer=Denying((Operation.DESCRIBE, ResourceType.TOPIC, "a")))
    node.topic("a")
    [refused] = page(node, "a").topics
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refused.topic_id == ZERO_TOPIC_ID
    assert page(node).topics == []


# Telemetry


def test_a_subscription_to_nothing(node):
    first = node.send(GetTelemetrySubscriptionsRequest(), 0)
    assert first.error_code == 0
    assert first.client_instance_id != bytes(16)
    assert first.requested_metrics == []
    again = GetTelemetrySubscriptionsRequest(client_instance_id=first.client_instance_id)
    assert node.send(again, 0).subscription_id == first.subscription_id


def test_pushed_metrics_are_judged_and_dropped(node):
    subscription = node.send(GetTelemetrySubscriptionsRequest(), 0)

    def push(**changes):
        fields = {
            "client_instance_id": subscription.client_instance_id,
            "subscription_id": subscription.subscription_id,
            **changes,
        }
        return node.send(PushTelemetryRequest(**fields), 0).error_code

    assert push() == 0
    assert push(client_instance_id=bytes(16)) == ErrorCode.INVALID_REQUEST
    assert push(subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(metrics=bytes(2**20 + 1)) == ErrorCode.TELEMETRY_TOO_LARGE


def test_telemetry_is_not_advertised():
    """Kafka without a telemetry receiver does not advertise it either."""
    for api_key in (71, 72):
        assert handlers()[api_key].advertised == range(0)
