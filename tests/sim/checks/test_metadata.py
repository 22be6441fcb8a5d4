"""Every way in which metadata can be wrong, planted by hand, is caught under its id."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.checks.stage import KEY, PLACE, TOPIC_ID, Stage

from anabranch.core.metadata.replay import replay_batch
from anabranch.core.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaRolesRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from anabranch.sim.checks.metadata import MetadataChecks
from anabranch.sim.checks.violation import Violation


def violated(act: Any) -> str:
    with pytest.raises(Violation) as caught:
        act()
    assert "\n" not in str(caught.value)
    return caught.value.id


def placed(replicas: list[int], **fields: Any) -> PartitionRecord:
    state = {"isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0, **fields}
    return PartitionRecord(partition_id=1, topic_id=TOPIC_ID, replicas=replicas, **state)


def test_a_topic_is_made_again_only_when_its_name_comes_back():
    stage = Stage()
    assert not stage.marks["topic-made-again"]
    stage.commit(TopicRecord(name="u", topic_id=bytes(15) + b"u"))
    stage.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert not stage.marks["topic-made-again"]
    stage.commit(TopicRecord(name="t", topic_id=bytes(15) + b"v"))
    assert stage.marks["topic-made-again"] == 1


def test_a_move_counts_that_ends_with_more_or_fewer_replicas():
    stage = Stage()

    def counted() -> int:
        return stage.marks["replication-factor-changed"]

    stage.register(4, 14)
    stage.change(replicas=[1, 2, 3, 4], adding_replicas=[4], removing_replicas=[3])
    stage.change(replicas=[1, 2, 4], isr=[1, 2, 4], adding_replicas=[], removing_replicas=[])
    stage.change(replicas=[1, 2, 4, 3], adding_replicas=[3])
    stage.change(replicas=[1, 2, 4], adding_replicas=[])
    assert counted() == 0
    stage.change(replicas=[1, 2, 4], removing_replicas=[4])
    stage.change(replicas=[1, 2], isr=[1, 2], removing_replicas=[])
    assert counted() == 1
    stage.change(replicas=[1, 2, 3], adding_replicas=[3])
    stage.change(replicas=[1, 2, 3], isr=[1, 2, 3], adding_replicas=[])
    assert counted() == 2


def test_what_a_controller_does_in_a_cluster_s_life_is_clean():
    stage = Stage()
    stage.change(isr=[1, 2])
    stage.change(isr=[1], eligible_leader_replicas=[2])
    stage.elect(2, [2], 1, eligible_leader_replicas=[1])
    stage.register(1, 50)
    stage.change(isr=[2, 1], eligible_leader_replicas=[])
    stage.change(leader=1)
    stage.commit(
        stage.changed(isr=[1], eligible_leader_replicas=[2]),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, in_controlled_shutdown=1),
    )
    stage.commit(
        ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="1"),
        ClearElrRecord(topic_name="t"),
    )
    stage.follow(1, 2, 3)
    stage.commit(UnregisterBrokerRecord(broker_id=3, broker_epoch=13), epoch=4)
    stage.commit(RemoveTopicRecord(topic_id=TOPIC_ID), epoch=4)
    marks = stage.marks
    assert marks["elr-election"] == marks["preferred-election"] == marks["broker-returned"] == 1
    assert marks["controlled-shutdown"] == marks["controller-failover"] == 1
    assert marks["isr-shrink-to-1"] == 2


# M1


def test_m1_a_controller_epoch_that_goes_back():
    stage = Stage()
    stage.commit(NoOpRecord(), epoch=3)
    assert violated(lambda: stage.commit(NoOpRecord(), epoch=2)) == "M1"


def test_m1_a_broker_epoch_that_goes_back():
    stage = Stage()
    assert violated(lambda: stage.register(2, 5)) == "M1"


def test_m1_a_node_whose_metadata_go_back():
    stage = Stage()
    older = stage.image
    stage.change(isr=[1, 2])
    stage.follow(3)
    stage.nodes[3].broker.image = older
    assert violated(lambda: stage.look(3)) == "M1"


# M2


def test_m2_two_leaders_of_one_epoch():
    stage = Stage()
    again = PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3], isr=[1, 2, 3], leader=2,
        leader_epoch=0, partition_epoch=1,
    )  # fmt: skip
    stage.change(isr=[1, 2], leader=1)
    assert violated(lambda: stage.commit(again)) == "M2"


# M3


@pytest.mark.parametrize(
    "fields",
    [
        {"leader": 3, "isr": [1, 2]},
        {"isr": [1, 2, 4]},
        {"isr": [1, 1, 2]},
        {"isr": [1], "eligible_leader_replicas": [1]},
        {"isr": [1], "eligible_leader_replicas": [2, 2]},
        {"isr": [1, 2], "eligible_leader_replicas": [3]},
    ],
    ids=["leader", "stranger", "twice", "both", "elr-twice", "elr-with-enough"],
)
def test_m3_sets_that_do_not_fit(fields):
    stage = Stage()
    assert violated(lambda: stage.change(**fields)) == "M3"


def test_m3_a_fenced_broker_in_the_isr():
    stage = Stage()
    assert violated(lambda: stage.commit(stage.fence(3))) == "M3"


def test_m3_a_leaving_broker_in_the_isr():
    stage = Stage()
    leaving = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=13, in_controlled_shutdown=1)
    assert violated(lambda: stage.commit(leaving)) == "M3"


def test_m3_with_elr_not_even_the_last_member_may_be_fenced():
    Stage(elr=False).elect(-1, [1], 1, 2, 3)
    assert violated(lambda: Stage().elect(-1, [1], 1, 2, 3)) == "M3"


def test_m3_a_changed_minimum_that_leaves_an_elr():
    stage = Stage()
    stage.change(isr=[1], eligible_leader_replicas=[2])
    lower = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="1")
    assert violated(lambda: stage.commit(lower)) == "M3"


def test_m3_an_observer_that_counts():
    stage = Stage()
    checks = MetadataChecks(stage.marks, stage.asked.__contains__)
    partition = stage.metadata.model.partitions[KEY]._replace(observers=(3,))
    checks.model.brokers = stage.metadata.model.brokers
    assert violated(lambda: checks._check_partition(KEY, partition)) == "M3"


# M4


@pytest.mark.parametrize(
    "replicas", [[1, 1], [1, -2], [-1, 1], [1, -1, -1], [1, -1, 2]],
    ids=["twice", "not-minus-one", "first", "twice-minus-one", "between"],
)  # fmt: skip
def test_m4_replicas_that_are_no_list_of_brokers_and_holes(replicas):
    stage = Stage(min_isr=1)
    assert violated(lambda: stage.commit(placed(replicas))) == "M4"


def test_m4_holes_at_the_end_are_allowed():
    Stage(min_isr=1).commit(placed([1, -2, -1]))


# M5


def test_m5_a_node_that_replays_something_else():
    stage = Stage()
    stage.change(isr=[1, 2])
    first = stage.image.next_offset
    stage.commit(stage.changed(leader=2))
    batch = (stage.changed(leader=1),)
    before = stage.nodes[3].broker.image
    wrong = replay_batch(before, (stage.changed(isr=[1, 2]), *batch), first, 1)[0]
    stage.nodes[3].broker.image = wrong
    assert violated(lambda: stage.look(3)) == "M5"


def test_m5_a_node_that_misses_a_broker_s_change():
    stage = Stage()
    image = stage.image
    stage.commit(RegisterBrokerRecord(broker_id=9, broker_epoch=70, fenced=True))
    stage.nodes[2].broker.image = replay_batch(image, (NoOpRecord(),), image.next_offset, 1)[0]
    assert violated(lambda: stage.look(2)) == "M5"


def test_m5_a_node_that_knows_what_was_never_committed():
    stage = Stage()
    image = stage.image
    ahead = replay_batch(image, (NoOpRecord(),), image.next_offset + 5, 1)[0]
    stage.nodes[2].broker.image = ahead
    assert violated(lambda: stage.look(2)) == "M5"


def test_m5_a_controller_that_plans_on_another_state():
    stage = Stage()
    controller = stage.nodes[1].controller
    controller.active, controller.epoch = True, 1
    controller.image = stage.image
    stage.look(1)
    before = stage.image
    stage.change(isr=[1, 2])
    planned = replay_batch(before, (stage.changed(isr=[1, 3]),), before.next_offset, 1)[0]
    controller.image = planned
    assert violated(lambda: stage.look(1)) == "M5"


def test_m5_a_hole_in_the_log():
    stage = Stage()
    end = stage.image.next_offset
    hole = lambda: stage.metadata.committed((NoOpRecord(),), end + 1, end + 2, 1)  # noqa: E731
    assert violated(hole) == "M5"


def test_m5_records_that_do_not_fit():
    stage = Stage()
    stranger = BrokerRegistrationChangeRecord(broker_id=8, broker_epoch=1, fenced=-1)
    checks, end = stage.metadata, stage.image.next_offset
    assert violated(lambda: checks.committed((stranger,), end, end + 1, 1)) == "M5"


def test_a_store_that_was_put_back_is_left_to_the_nodes():
    stage = Stage()
    end = stage.image.next_offset
    stage.metadata.committed((NoOpRecord(),), end - 3, end - 2, 1)
    assert stage.metadata.rewound


def test_observers_are_followed_in_images_too():
    stage = Stage(min_isr=1)
    stage.commit(placed([1, 2]))
    roles = ReplicaRolesRecord(partition_id=1, topic_id=TOPIC_ID, observers=[3])
    stage.commit(roles)
    stage.nodes[1].broker.image = stage.image
    stage.metadata.look(stage.nodes[1])


# Disks that were lost


def with_folders(stage: Stage, *, wiped: int) -> None:
    """The replicas lie in folders, and one broker has another folder by now."""
    folders = [bytes([node_id]) * 16 for node_id in (1, 2, 3)]
    for node_id in (1, 2, 3):
        own = b"w" * 16 if node_id == wiped else folders[node_id - 1]
        stage.commit(
            RegisterBrokerRecord(
                broker_id=node_id, broker_epoch=80 + node_id, fenced=False, log_dirs=[own]
            )
        )
    stage.change(directories=folders)


def test_l4_a_replica_that_lost_its_disk_is_elected_as_if_it_had_not():
    stage = Stage()
    with_folders(stage, wiped=2)
    assert violated(lambda: stage.elect(2, [2, 3], 1)) == "L4"


def test_a_replica_that_lost_its_disk_is_nobody_who_could_lead():
    stage = Stage(unclean_leader_election_enable="true")
    stage.change(isr=[1, 2])
    with_folders(stage, wiped=2)
    stage.elect(3, [3], 1, leader_recovery_state=1)
    assert stage.marks["unclean-election"] == 1


def test_l4_a_replica_is_told_as_lost_that_nothing_took():
    stage = Stage()
    lost = (1).to_bytes(16)
    assert violated(lambda: stage.change(directories=[bytes(16), lost, bytes(16)])) == "L4"


@pytest.mark.parametrize("is_same_life", [False, True])
def test_a_replica_that_cannot_serve_may_be_told_as_lost(is_same_life):
    stage = Stage()
    node, lost = stage.nodes[2], [bytes(16), (1).to_bytes(16), bytes(16)]
    node.broker.partitions.give_up(PLACE, TOPIC_ID, is_rotten=True)
    stage.metadata.look(node)
    if not is_same_life:
        stage.register(2, 50)
        assert violated(lambda: stage.change(directories=lost)) == "L4"
        return
    stage.change(directories=lost)
    node.broker.partitions.no_more(PLACE)
    stage.change(isr=[1, 3])  # it stays so until the replica was in sync again


def test_m5_a_folder_that_a_node_does_not_know():
    stage = Stage()
    with_folders(stage, wiped=2)
    stage.nodes[1].broker.image = stage.image
    stage.metadata.look(stage.nodes[1])
    before = stage.image
    stage.change(directories=[b"x" * 16] * 3)
    wrong = replay_batch(before, (NoOpRecord(),), before.next_offset, 1)[0]
    stage.nodes[1].broker.image = wrong
    assert violated(lambda: stage.metadata.look(stage.nodes[1])) == "M5"


def test_m3_who_was_coming_stays_only_when_it_is_in_sync():
    stage = Stage()
    stage.change(isr=[1, 2], adding_replicas=[3])
    with pytest.raises(Violation, match="M3"):
        stage.change(adding_replicas=[])
    stage = Stage()
    stage.change(adding_replicas=[3])
    stage.change(adding_replicas=[])


# Diskless partitions


def diskless_stage():
    return Stage(diskless_enable="true")


def test_m3_of_a_diskless_partition_the_dead_stay_in_sync_and_the_living_lead():
    stage = diskless_stage()
    fenced = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=1)
    stage.commit(stage.changed(leader=2), fenced)
    stage.change(replicas=[2, 3], isr=[2, 3])
    unregistered = UnregisterBrokerRecord(broker_id=3, broker_epoch=13)
    stage.commit(unregistered)


@pytest.mark.parametrize(
    "wrong",
    [{"isr": [1, 2]}, {"isr": [1, 2, 3], "eligible_leader_replicas": [3]},
     {"replicas": [1, 2], "isr": [1, 2, 3]}, {"leader": -1}, {"leader": 9},
     {"adding_replicas": [3]}, {"replicas": [], "isr": []}],
)  # fmt: skip
def test_m3_of_a_diskless_partition_that_is_treated_as_a_classic_one(wrong):
    stage = diskless_stage()
    assert violated(lambda: stage.change(**wrong)) == "M3"


def test_m3_a_dead_leader_of_a_diskless_partition():
    stage = diskless_stage()
    fenced = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=1)
    assert violated(lambda: stage.commit(fenced)) == "M3"
