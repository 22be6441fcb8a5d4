"""What a change of metadata asks of a broker."""

from msgspec.structs import replace
from tests.core.api.in_memory_node import InMemoryNode, take_offline

from anabranch.core.metadata.image import MetadataDelta
from anabranch.core.types import TopicPartition


def test_a_delta_is_planned_by_what_it_touches():
    node = InMemoryNode()
    topic_id = node.topic(partitions=3)
    partitions, image = node.broker.partitions, node.broker.image
    plan = partitions.plan(
        image, MetadataDelta(changed_partitions={topic_id: (1,)}), broker_epoch=7
    )
    assert [replica.topic_partition.partition for replica, _ in plan.update] == [1]
    assert (plan.drop, plan.create) == ((), ())


def test_a_deleted_topic_is_dropped_whole():
    node = InMemoryNode()
    node.topic(partitions=2)
    topic, image = node.broker.image.topic("t"), type(node.broker.image).empty()
    plan = node.broker.partitions.plan(
        image, MetadataDelta(deleted_topics=(topic,)), broker_epoch=7
    )
    assert len(plan.drop) == 2


def test_a_partition_that_moved_away_is_dropped_and_one_that_came_is_created():
    node = InMemoryNode()
    topic_id = node.topic(partitions=1)
    node.topic("u", replicas=(2,), leader=2)
    assert node.broker.partitions.get("u", 0) is None
    node.change("u", replicas=(2, 1), leader=2)
    assert node.broker.partitions.get("u", 0) is not None
    node.change("t", replicas=(2,), leader=2)
    assert node.broker.partitions.get_by_id(topic_id, 0) is None
    assert len(node.broker.partitions) == 1


def test_an_offline_partition_is_not_created_again_but_its_successor_is():
    node = InMemoryNode()
    node.topic()
    partitions = node.broker.partitions
    take_offline(partitions, node.replica())
    assert partitions.plan(node.broker.image, None, broker_epoch=7).create == ()
    assert TopicPartition("t", 0) in partitions.offline
    node.remove("t")
    assert partitions.offline == {}


def test_a_log_that_is_gone_is_copied_anew_only_when_nobody_counts_on_it():
    node = InMemoryNode()
    node.topic(replicas=(1, 2, 3), leader=2)
    partitions, place = node.broker.partitions, TopicPartition("t", 0)
    state = node.broker.image.partition("t", 0)
    others = replace(state, leader=2, isr=(2, 3), elr=(), last_known_elr=())
    assert partitions.may_begin_anew(others)
    for counted in ({"isr": (2, 1)}, {"elr": (1,)}, {"last_known_elr": (1,)}, {"leader": -1}):
        assert not partitions.may_begin_anew(replace(others, **counted))
    assert not partitions.may_begin_anew(replace(others, leader=1))

    take_offline(partitions, node.replica())
    partitions.missing.add(place)
    node.change("t", replicas=(1, 2, 3), leader=2, isr=(1, 2, 3))
    assert place in partitions.offline
    node.change("t", replicas=(1, 2, 3), leader=2, isr=(2, 3))
    assert place not in partitions.offline
    assert place not in partitions.missing
    assert not node.replica().is_leader


def test_an_older_state_is_left_alone():
    node = InMemoryNode()
    node.topic()
    old = node.broker.image.partition("t", 0)
    node.change("t", leader_epoch=3)
    assert not node.replica().take_state(old)
    assert node.replica().leader_epoch == 3


def test_a_process_leads_nothing_by_metadata_that_does_not_know_it():
    """A power cut may have taken records of the epoch in which its predecessor led."""
    node = InMemoryNode()
    node.topic()
    image, partitions = node.broker.image, node.broker.partitions
    for unknown in (-1, 6, 8):
        ((_, state),) = partitions.plan(image, None, broker_epoch=unknown).update
        assert (state.leader, state.leader_epoch) == (-1, 0)
    ((_, state),) = partitions.plan(image, None, broker_epoch=7).update
    assert state.leader == 1


def test_nobody_leads_in_an_epoch_older_than_his_records():
    node = InMemoryNode()
    node.topic()
    node.change("t", leader=2, leader_epoch=3)
    node.replica().log.epochs.assign(3, 0)
    node.replica().leader_epoch = -1
    node.change("t", leader=1, leader_epoch=2)
    assert not node.replica().is_leader
    assert node.replica().log.epochs.latest == 3
