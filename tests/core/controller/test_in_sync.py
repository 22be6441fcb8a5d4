"""R1, R3: AlterPartition with every error in Kafka's order, elections on request, unregistering."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def world():
    """Three brokers, and a topic `t` whose one partition is on 1, 2 and 3, led by 1."""
    made = World()
    made.start(1, 2, 3)
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
    )
    made.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1))
    return made


def partition(world):
    return world.image.partition("t", 0)


def alter(world, *isr, broker_id=1, version=3, **changes):
    """The answer for t-0, or the top-level error."""
    state = partition(world)
    asked = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.recovery_state,
    )
    topic_id = changes.pop("topic_id", world.image.topic("t").topic_id)
    broker_epoch = changes.pop("broker_epoch", world.image.brokers[broker_id].epoch)
    epochs = changes.pop("epochs", {})
    for name, each in changes.items():
        setattr(asked, name, each)
    asked.new_isr = list(isr)
    asked.new_isr_with_epochs = [
        BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr
    ]
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[asked])],
    )
    response = world.ask(request, version)
    return response if response.error_code else response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_shrinks_and_expands_the_isr(world, version):
    shrunk = alter(world, 1, 2, version=version)
    assert (shrunk.error_code, shrunk.isr, shrunk.leader_id, shrunk.leader_epoch) == (
        0,
        [1, 2],
        1,
        0,
    )
    assert shrunk.partition_epoch == partition(world).partition_epoch == 1
    assert partition(world).isr == (1, 2)
    grown = alter(world, 1, 2, 3, version=version)
    assert grown.partition_epoch == 2 and partition(world).isr == (1, 2, 3)
    assert world.replayed().partition("t", 0) == partition(world)


def test_the_same_isr_again_writes_nothing(world):
    before = world.image.offset
    same = alter(world, 3, 1, 2)
    assert (same.error_code, same.isr, same.partition_epoch) == (0, [3, 1, 2], 0)
    assert world.image.offset == before


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ((1, 2), {"topic_id": TopicId(b"x" * 16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, 2), {"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((1, 9), {}, ErrorCode.INVALID_REQUEST),
        ((1, -1), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"epochs": {2: 12345}}, ErrorCode.INELIGIBLE_REPLICA),
        ((1, 2), {"broker_epoch": 12345}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)  # fmt: skip
def test_each_refusal_has_its_code_and_writes_nothing(world, isr, changes, code):
    before = world.image
    assert alter(world, *isr, **changes).error_code == code
    assert world.image is before


def test_a_change_that_stands_on_an_older_state_is_refused(world):
    """Broker 3 left and is back, unfenced: what its leader wished before says nothing of now."""
    assert alter(world, 1, 2).error_code == 0
    before = world.image
    stale = alter(world, 1, 2, 3, partition_epoch=0)
    assert stale.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.image is before


def test_later_checks_do_not_hide_earlier_ones(world):
    everything_wrong = {"partition_epoch": 9, "leader_epoch": -1, "broker_id": 2}
    assert alter(world, 9, 9, **everything_wrong).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("how", [{"want_fence": True}, {"want_shut_down": True}])
def test_a_replica_that_is_fenced_or_leaves_may_not_be_in_sync(world, how):
    world.beat(3, **how)
    assert 3 not in partition(world).isr
    assert alter(world, 1, 2, 3).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_that_was_restarted_is_told_by_its_epoch(world):
    old = world.image.brokers[3].epoch
    world.register(3, incarnation=2)
    world.beat(3)
    assert alter(world, 1, 2, 3, epochs={3: old}).error_code == ErrorCode.INELIGIBLE_REPLICA
    epoch = world.image.brokers[3].epoch
    assert alter(world, 1, 2, 3, epochs={3: epoch}).error_code == 0


# Elections.


def elect(world, kind, *indexes, topic="t", everything=False):
    named = None if everything else [TopicPartitions(topic=topic, partitions=list(indexes))]
    response = world.ask(ElectLeadersRequest(election_type=kind, topic_partitions=named))
    if response.error_code:
        return response.error_code
    return [
        (result.topic, each.partition_id, each.error_code)
        for result in response.replica_election_results
        for each in result.partition_result
    ]


def test_the_preferred_leader_leads_again_once_it_is_in_sync(world):
    world.beat(1, want_fence=True)
    assert partition(world).leader == 2
    world.beat(1)
    assert elect(world, PREFERRED, 0) == [("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    alter(world, 1, 2, 3, broker_id=2)
    assert elect(world, PREFERRED, 0) == [("t", 0, 0)]
    assert (partition(world).leader, partition(world).isr) == (1, (1, 2, 3))
    assert elect(world, PREFERRED, 0) == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)]


def test_with_no_list_only_what_needs_an_election_is_told(world):
    assert elect(world, PREFERRED, everything=True) == []
    world.beat(1, want_fence=True)
    world.beat(1)
    alter(world, 1, 2, 3, broker_id=2)
    assert elect(world, PREFERRED, everything=True) == [("t", 0, 0)]


def test_an_unclean_election_is_for_partitions_that_nobody_leads(world):
    assert elect(world, UNCLEAN, 0) == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)]
    alter(world, 1)
    world.beat(1, want_fence=True)
    assert partition(world).leader == -1
    assert elect(world, UNCLEAN, 0) == [("t", 0, 0)]
    chosen = partition(world)
    assert (chosen.leader, chosen.isr, chosen.recovery_state) == (2, (2,), 1)
    recovered = alter(world, 2, broker_id=2, leader_recovery_state=0)
    assert (recovered.error_code, recovered.leader_recovery_state) == (0, 0)


def test_nobody_is_elected_where_nobody_runs(world):
    alter(world, 1)
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
    assert elect(world, UNCLEAN, 0) == [("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]


def test_what_is_not_there_is_named(world):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(world, PREFERRED, 7) == [("t", 7, unknown)]
    assert elect(world, PREFERRED, 0, topic="x") == [("x", 0, unknown)]
    assert elect(world, 9, 0) == ErrorCode.INVALID_REQUEST


# Unregistering.


def test_a_broker_that_is_unregistered_leaves_everything_but_replica_lists(world):
    response = world.ask(UnregisterBrokerRequest(broker_id=1))
    assert response.error_code == 0
    assert sorted(world.image.brokers) == [2, 3]
    assert partition(world).replicas == (1, 2, 3)
    assert (partition(world).leader, partition(world).isr) == (2, (2, 3))
    again = world.ask(UnregisterBrokerRequest(broker_id=1))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "Broker ID 1" in again.error_message
    assert world.replayed().brokers == world.image.brokers
