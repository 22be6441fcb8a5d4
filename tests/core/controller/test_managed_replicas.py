"""Diskless topics: their replicas are the cluster's affair, all in sync, and led by who lives."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import UNASSIGNED_DIRECTORY
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
)
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequestPartitionData as AskedPartition,
)
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequestTopicData as AskedTopic,
)
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.metadata_records import PartitionChangeRecord

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
FACTOR = (
    "replication factor is system-managed for diskless topics; use replicationFactor=-1 or "
    "replicationFactor=1"
)
ASSIGNMENTS = (
    "replica assignments cannot be specified for diskless topics; placement is system-managed"
)


def racked_world(*broker_ids, **settings):
    """A controller with these brokers, in the racks of RACKS, and diskless topics allowed."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    world = World(settings={"diskless.storage.system.enable": "true", **names})
    for broker_id in broker_ids or (1, 2, 3):
        world.register(broker_id, rack=RACKS.get(broker_id))
        world.beat(broker_id)
    return world


def creating(world, name, factor=-1, partitions=1, assignments=(), **configs):
    """The answer to a CreateTopics request for a diskless topic."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=row)
            for index, row in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in {"diskless_enable": "true", **configs}.items()
        ],
    )
    return world.ask(CreateTopicsRequest(topics=[topic])).topics[0]


def diskless(world, name="t", partitions=1, **configs):
    answer = creating(world, name, partitions=partitions, **configs)
    assert answer.error_code == 0, answer.error_message
    return answer


def rows(world, name="t"):
    topic = world.image.topic(name)
    return [topic.partitions[index].replicas for index in range(len(topic.partitions))]


def reassign(world, name, index, row):
    asked = ReassignablePartition(partition_index=index, replicas=row)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[asked])]
    )
    (topic,) = world.ask(request).responses
    return topic.partitions[0].error_code, topic.partitions[0].error_message


def check_all(world):
    """What holds for every diskless partition at any time, and that the log says the same."""
    for key in world.controller.state.diskless.keys:
        partition = world.controller.state.partition(key)
        assert partition.isr == partition.replicas
        assert not (partition.elr or partition.last_known_elr)
        assert not (partition.adding or partition.removing)
        assert set(partition.directories) == {UNASSIGNED_DIRECTORY}
        living = [each for each in partition.replicas if each in world.image.brokers
                  and world.image.brokers[each].active]  # fmt: skip
        assert partition.leader in living or (partition.leader == -1 and not living)
    image = world.image
    assert world.replayed() == image
    assert from_snapshot(snapshot_records(image), image.next_offset, image.epoch) == image
    again, state = ClusterState.of(world.image), world.controller.state
    assert again.diskless.keys.keys() == state.diskless.keys.keys()
    assert again.diskless.topics == state.diskless.topics
    for index in ("on", "led_by"):
        known, anew = getattr(state.diskless, index), getattr(again.diskless, index)
        assert {k: set(v) for k, v in known.items() if v} == {k: set(v) for k, v in anew.items()}
    assert {k for k, v in state.in_isr.items() if v} == {k for k, v in again.in_isr.items() if v}


# Creation


@pytest.mark.parametrize("factor", [-1, 1])
def test_both_factors_mean_one_replica_in_each_rack(factor):
    world = racked_world(1, 2, 3, 4)
    answer = creating(world, "t", factor, partitions=6)
    assert (answer.error_code, answer.replication_factor) == (0, 3)
    for row in rows(world):
        assert sorted(RACKS[each] for each in row) == ["a", "b", "c"]
    check_all(world)


@pytest.mark.parametrize(
    ("factor", "assignments", "sentence"),
    [(0, (), FACTOR), (2, (), FACTOR), (3, (), FACTOR), (-2, (), FACTOR),
     (-1, [[1, 2, 3]], ASSIGNMENTS), (1, [[1]], ASSIGNMENTS)],
)  # fmt: skip
def test_who_chooses_replicas_is_refused_in_the_words_of_the_document(
    factor, assignments, sentence
):
    world = racked_world()
    answer = creating(world, "t", factor, -1 if assignments else 1, assignments)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, sentence)
    assert world.image.topic("t") is None


def test_brokers_without_a_rack_are_a_rack_of_their_own():
    world = racked_world(1, 7, 8)
    assert diskless(world, partitions=4).replication_factor == 2
    assert {frozenset(row) for row in rows(world)} == {frozenset({1, 7}), frozenset({1, 8})}


def test_a_rack_without_an_eligible_broker_gets_nothing_and_that_is_said():
    world = racked_world()
    world.beat(3, want_fence=True)
    assert diskless(world).replication_factor == 2
    assert "rack c has no broker that can get a replica" in world.reasons[-1].sentence


def test_min_insync_replicas_has_no_effect():
    world = racked_world(1, 2)
    diskless(world, min_insync_replicas="3")
    world.beat(1, want_fence=True)
    assert world.partition("t").leader == 2
    check_all(world)


def test_added_partitions_are_placed_alike_and_by_nobody_else():
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    by_hand = [CreatePartitionsAssignment(broker_ids=[1])]
    wanted = CreatePartitionsTopic(name="t", count=3, assignments=by_hand)
    (refused,) = world.ask(CreatePartitionsRequest(topics=[wanted])).results
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, ASSIGNMENTS)
    wanted = CreatePartitionsTopic(name="t", count=3, assignments=None)
    (made,) = world.ask(CreatePartitionsRequest(topics=[wanted])).results
    assert made.error_code == 0
    assert [sorted(RACKS[each] for each in row) for row in rows(world)] == [["a", "b", "c"]] * 3
    assert len({row[0] for row in rows(world)}) == 3
    check_all(world)


# Leaders and in-sync replicas


def test_the_leader_is_always_among_the_living_and_the_dead_stay_in_sync():
    world = racked_world()
    diskless(world, partitions=3, unclean_leader_election_enable="true")
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
        check_all(world)
    assert {world.partition("t", index).leader for index in range(3)} == {-1}
    world.pass_time(60_000)  # the duty of unclean elections has nothing to do here
    check_all(world)
    world.beat(2)
    assert {world.partition("t", index).leader for index in range(3)} == {2}
    check_all(world)
    assert not world.sentences("LEADER_ELECTED_UNCLEANLY")
    assert not world.sentences("ISR_CHANGED")


def test_a_controlled_shutdown_and_unregistering_move_the_leadership_alone():
    world = racked_world()
    diskless(world, partitions=3)
    before = rows(world)
    world.beat(1, want_shut_down=True)
    check_all(world)
    world.beat(2, want_shut_down=True)
    world.ask(UnregisterBrokerRequest(broker_id=1))
    check_all(world)
    assert rows(world) == before
    assert {world.partition("t", index).leader for index in range(3)} == {3}


def test_a_restarted_broker_may_lead_at_once():
    world = racked_world(1)
    diskless(world)
    world.register(1, incarnation=2, rack="a")
    assert world.partition("t").leader == -1
    world.beat(1)
    assert world.partition("t").leader == 1
    check_all(world)


def test_nobody_may_alter_the_in_sync_replicas_or_assign_folders():
    world = racked_world()
    diskless(world)
    topic, before = world.image.topic("t"), world.partition("t")
    leader = world.image.brokers[before.leader]
    asked = AskedPartition(
        partition_index=0,
        leader_epoch=before.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=before.leader, broker_epoch=leader.epoch)],
        partition_epoch=before.partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=before.leader,
        broker_epoch=leader.epoch,
        topics=[AskedTopic(topic_id=topic.topic_id, partitions=[asked])],
    )
    answer = world.ask(request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    where = DirectoryData(
        id=leader.log_dirs[0],
        topics=[TopicData(topic_id=topic.topic_id, partitions=[PartitionData(partition_index=0)])],
    )
    request = AssignReplicasToDirsRequest(
        broker_id=leader.broker_id, broker_epoch=leader.epoch, directories=[where]
    )
    answer = world.ask(request).directories[0].topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert world.partition("t") == before


def test_an_election_that_is_asked_for_is_clean_or_refused():
    world = racked_world(1, 2)
    diskless(world)
    first = world.partition("t").leader
    world.beat(first, want_fence=True)
    for kind, code in ((0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
                       (1, ErrorCode.ELECTION_NOT_NEEDED)):  # fmt: skip
        wanted = [TopicPartitions(topic="t", partitions=[0])]
        answer = world.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted))
        assert answer.replica_election_results[0].partition_result[0].error_code == code
    world.beat(first)
    answer = world.ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted))
    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert world.partition("t").leader == first
    check_all(world)


# Moves


def test_a_reassignment_is_done_with_the_request():
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    world.pass_time(10)
    assert reassign(world, "t", 0, [4, 2, 3]) == (0, None)
    assert world.partition("t").replicas == (4, 2, 3)
    check_all(world)
    (sentence,) = world.sentences("REASSIGNMENT_DONE")
    assert "no records move" in sentence
    code, _ = reassign(world, "t", 0, None)
    assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_to_brokers_that_are_all_down_is_refused():
    world = racked_world(1, 2, 3, 4)
    diskless(world)
    before = world.partition("t")
    world.beat(4, want_fence=True)
    code, sentence = reassign(world, "t", 0, [4])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "broker" in sentence
    assert world.partition("t") == before


def test_a_change_of_a_partition_leaves_its_place_in_the_index():
    """Keys that go and come again fill a table of 100,000 with gaps, until it is made anew at
    once: two such tables held up the loop of a controller for 40 ms."""
    world = racked_world(1, 2)
    diskless(world, partitions=20)
    index = world.controller.state.diskless
    tables = [index.keys, *(table[each] for table in (index.on, index.led_by) for each in (1, 2))]
    before = [list(each) for each in tables]
    topic_id = world.image.topic("t").topic_id
    row = [*world.partition("t", 3).replicas, 3]
    nowhere = [UNASSIGNED_DIRECTORY] * 3
    world.commit([PartitionChangeRecord(partition_id=3, topic_id=topic_id, isr=row, replicas=row,
                                        directories=nowhere)])  # fmt: skip
    assert [list(each) for each in tables] == before
    assert list(index.on[3]) == [(topic_id, 3)]
    check_all(world)
