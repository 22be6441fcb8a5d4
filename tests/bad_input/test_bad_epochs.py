"""Requests between nodes that come too late, too early, from elsewhere, or from a client (R4, R17)."""

from __future__ import annotations

import pytest
from bad_kit import LATEST, Raw, framed
from cluster_kit import IDS, TOPIC, ThreeNodes

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import BrokerRegistrationRequest, Listener
from anabranch.core.wire.messages.create_topics import CreateTopicsRequest
from anabranch.core.wire.messages.describe_quorum import DescribeQuorumRequest
from anabranch.core.wire.messages.envelope import EnvelopeRequest
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

METADATA = "__cluster_metadata"
MUCH = 1 << 40


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    cluster = ThreeNodes(tmp_path_factory.mktemp("three"))
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared):
    """The cluster; whatever a test sends, leader, epochs and ISR stay, and nothing is lost."""
    shared.in_sync()
    before = shared.partition()
    yield shared
    after = shared.partition()
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert set(after.isr_nodes) == set(IDS)
    assert shared.is_well()
    for node in shared.nodes.values():
        assert not [line for line in node.lines if "Traceback" in line or " ERROR " in line]


def alter(cluster, isr, *, leader=None, **changes):
    """An AlterPartition in the leader's name."""
    known = cluster.partition()
    asked = AlterPartitionRequestPartitionData(
        leader_epoch=known.leader_epoch,
        partition_epoch=changes.pop("partition_epoch", MUCH % (1 << 30)),
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
    )
    broker_epoch = changes.pop("broker_epoch", 0)
    for name, value in changes.items():
        setattr(asked, name, value)
    topic = AlterPartitionRequestTopicData(topic_id=cluster.topic_id, partitions=[asked])
    request = AlterPartitionRequest(
        broker_id=leader or known.leader_id, broker_epoch=broker_epoch, topics=[topic]
    )
    with cluster.controller() as client:
        answer = client.ask(request, 3)
    return answer.error_code or answer.topics[0].partitions[0].error_code


def epoch_of(cluster, broker_id):
    """A broker's epoch: the one that its heartbeats are taken with."""
    with cluster.controller() as client:
        for epoch in range(500):
            beat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
            if not client.ask(beat, 1).error_code:
                return epoch
    raise AssertionError("no epoch is taken")


@pytest.mark.parametrize("epoch", [-1, 0, MUCH])
def test_a_stale_broker_epoch(cluster, epoch):
    leader = cluster.partition().leader_id
    assert alter(cluster, [leader], broker_epoch=epoch) == ErrorCode.STALE_BROKER_EPOCH
    with cluster.controller() as client:
        for body, version in (
            (BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, want_fence=True), 1),
            (BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, want_shut_down=True), 1),
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), 0),
            (BrokerHeartbeatRequest(broker_id=77, broker_epoch=epoch), 1),
        ):
            assert client.ask(body, version).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_stale_leader_epoch_of_a_leader(cluster):
    """Who knows less than the controller does not lead; who knows more is asked to wait."""
    leader = cluster.partition().leader_id
    other = next(each for each in IDS if each != leader)
    fresh = {"broker_epoch": epoch_of(cluster, leader)}
    refused = {
        alter(cluster, [leader], leader_epoch=-1, **fresh): ErrorCode.FENCED_LEADER_EPOCH,
        alter(cluster, [leader], leader_epoch=99, **fresh): ErrorCode.NOT_CONTROLLER,
        alter(cluster, [leader], partition_epoch=-1, **fresh): ErrorCode.INVALID_UPDATE_VERSION,
        alter(cluster, [leader], partition_epoch=9999, **fresh): ErrorCode.NOT_CONTROLLER,
    }
    assert all(found == wanted for found, wanted in refused.items())
    of_another = {"leader": other, "broker_epoch": epoch_of(cluster, other)}
    assert alter(cluster, [other], partition_epoch=0, **of_another) == ErrorCode.INVALID_REQUEST


def read(cluster, client, epoch, **who):
    """Error codes of a read, a lookup of offsets, and one of epochs, with a leader epoch."""
    offset = ListOffsetsPartition(timestamp=LATEST, current_leader_epoch=epoch)
    ended = OffsetForLeaderPartition(current_leader_epoch=epoch, leader_epoch=0)
    fetched = FetchPartition(current_leader_epoch=epoch, partition_max_bytes=100)
    replica = who.get("replica_id", -1)
    answers = (
        client.ask(FetchRequest(
            replica_id=replica, topics=[FetchTopic(topic=TOPIC, partitions=[fetched])]), 12),
        client.ask(ListOffsetsRequest(
            replica_id=replica, topics=[ListOffsetsTopic(name=TOPIC, partitions=[offset])]), 5),
        client.ask(OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[ended])]), 4),
    )  # fmt: skip
    parts = (answers[0].responses, answers[1].topics, answers[2].topics)
    return [each[0].partitions[0].error_code for each in parts]


def test_a_leader_epoch_that_is_over_or_to_come(cluster):
    leader = cluster.partition()
    with Raw(cluster.nodes[leader.leader_id]) as client:
        assert read(cluster, client, leader.leader_epoch) == [0, 0, 0]
        assert (
            read(cluster, client, leader.leader_epoch + 1) == [ErrorCode.UNKNOWN_LEADER_EPOCH] * 3
        )
        if leader.leader_epoch:
            before = leader.leader_epoch - 1
            assert read(cluster, client, before) == [ErrorCode.FENCED_LEADER_EPOCH] * 3


def metadata(cluster, **changes):
    """The answer of the active controller to a fetch of the metadata."""
    part = FetchPartition(partition_max_bytes=1000)
    epoch = changes.pop("epoch", -1)
    part.current_leader_epoch = epoch
    request = FetchRequest(topics=[FetchTopic(topic=METADATA, partitions=[part])], **changes)
    with cluster.controller() as client:
        answer = client.ask(request, 12)
    return answer.error_code or answer.responses[0].partitions[0].error_code


def test_a_controller_epoch_that_is_over_or_to_come(cluster):
    with cluster.controller() as client:
        assert client.ask(DescribeQuorumRequest(), 2).error_code == 0
    assert metadata(cluster) == 0
    assert metadata(cluster, epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert metadata(cluster, epoch=99) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_request_to_a_controller_that_waits(cluster):
    waiting = next(each for each in IDS if each != cluster.active())
    with cluster.controller(waiting) as client:
        for body, version in (
            (BrokerHeartbeatRequest(broker_id=2, broker_epoch=0, want_shut_down=True), 1),
            (AllocateProducerIdsRequest(broker_id=2), 0),
            (AlterPartitionRequest(broker_id=2), 3),
            (CreateTopicsRequest(), 7),
        ):
            answer = client.ask(body, version)
            assert getattr(answer, "error_code", ErrorCode.NOT_CONTROLLER) == (
                ErrorCode.NOT_CONTROLLER
            )


def test_another_cluster_s_id(cluster):
    assert metadata(cluster, cluster_id="somewhere-else") == ErrorCode.INCONSISTENT_CLUSTER_ID
    stranger = BrokerRegistrationRequest(
        broker_id=2, cluster_id="somewhere-else", incarnation_id=b"i" * 16, log_dirs=[b"d" * 16],
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1)],
    )  # fmt: skip
    with cluster.controller() as client:
        answer = client.ask(stranger, 4)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_client_that_poses_as_a_follower(cluster):
    """On the clients' listener, where brokers have one of their own; Kafka takes it. Where epochs
    and offsets lie, clients may ask."""
    leader = cluster.partition()
    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, 0]
    with cluster.client(leader.leader_id) as client:
        assert read(cluster, client, leader.leader_epoch) == [0, 0, 0]
        assert read(cluster, client, leader.leader_epoch, replica_id=2) == refused


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (AlterPartitionRequest(broker_id=2), 3),
        (BrokerHeartbeatRequest(broker_id=2, want_shut_down=True), 1),
        (BrokerRegistrationRequest(broker_id=2), 4),
        (AllocateProducerIdsRequest(broker_id=2), 0),
        (EnvelopeRequest(request_data=b"x", client_host_address=b"abcd"), 0),
    ],
)
def test_a_broker_s_request_to_a_clients_listener(cluster, body, version):
    for client in (cluster.client(1), Raw(cluster.nodes[1])):
        with client:
            assert client.send(framed(body, version)).ended()
    cluster.nodes[1].says("closing a connection", f"API key {type(body).api_key}")
