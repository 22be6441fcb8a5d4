"""A coordinator that is deposed: what its members wait for is refused, at once, and never told.

Found by chaos (seed 3004): frozen over its session, a coordinator woke as a follower; its log was
cut and grew under its successor past the offset of a commit that waited, and the commit was
acknowledged, though it was nowhere.
"""

from __future__ import annotations

import pytest
from tests.core.groups.test_offsets import replicated

from anabranch.core.errors import ErrorCode
from anabranch.core.groups.group import CommittedOffset
from anabranch.core.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from anabranch.core.groups.records import offset_record
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import build_batch

SUCCESSORS_OFFSET = 5
"""What the group committed at the coordinator that came after."""


def hand_over(world, *, is_told: bool = True) -> None:
    """Broker 2 is elected; this one follows it, if it has looked up from its nap."""
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, leader=2, leader_epoch=1, isr=(2,))
    if is_told:
        world.follow()
        world.wake()


def cut_and_grow(world, to_offset: int) -> None:
    """What no other replica had is cut off, and the successor's commits take its offsets."""
    index = partition_of("g", world.broker.image, world.broker.config)
    replica = world.node.replica(OFFSETS_TOPIC, index)
    replica.log.truncate_to(0)
    replica.truncated()
    committed = CommittedOffset(SUCCESSORS_OFFSET, -1, "", world.node.now_ms, -1)
    record = offset_record("g", "t", 0, committed, world.node.now_ms)
    for offset in range(to_offset):
        batch = build_batch([record._replace(offset=offset)], base_offset=offset, leader_epoch=1)
        replica.log.append_as_follower(batch, now_ms=world.node.now_ms)
    replica.copied(to_offset, 0)
    world.broker.changed.add(TopicPartition(OFFSETS_TOPIC, index))


def take_back(world) -> None:
    """This broker is elected again, in a later epoch, and has everything replicated."""
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, leader=1, leader_epoch=2, isr=(1, 2))
    world.follow()
    world.commit_to_replicas()


def stable(world) -> tuple[str, int]:
    """A member and its generation."""
    joined = world.enter()
    world.sync(joined.member_id, 1, {joined.member_id: b"all"})
    world.commit_to_replicas()
    return joined.member_id, joined.generation_id


def code_of(box) -> int:
    return box[0].topics[0].partitions[0].error_code


@pytest.mark.parametrize("is_back", [False, True])
def test_a_commit_whose_offset_others_records_have_is_not_acknowledged(is_back) -> None:
    world = replicated()
    box = world.commit({0: 7})
    hand_over(world, is_told=False)
    cut_and_grow(world, to_offset=3)
    if is_back:
        take_back(world)
        assert world.fetch()[0] == SUCCESSORS_OFFSET, "which is what was lost"
    world.wake()
    assert code_of(box) == ErrorCode.NOT_COORDINATOR


def test_a_group_stays_where_it_is_when_its_leader_leads_on_in_another_epoch() -> None:
    """As when a move of the partition is over: nothing was cut, so what waits is still true, and
    its members need not join again."""
    world = replicated()
    member, generation = stable(world)
    box = world.commit({0: 7}, member_id=member, generation_id=generation)
    group = world.group()
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, leader=1, leader_epoch=1)
    world.follow()
    world.wake()
    assert box == [] and world.group() is group
    world.commit_to_replicas()
    assert code_of(box) == ErrorCode.NONE
    assert world.fetch()[0] == 7
    assert world.heartbeat(member, generation) == 0


def test_a_commit_that_waits_is_refused_as_soon_as_the_coordinator_moves() -> None:
    """As in Kafka, whose queue of what waits fails with NOT_COORDINATOR; the client need not wait
    for `offsets.commit.timeout.ms`."""
    world = replicated()
    box = world.commit({0: 7})
    world.wake()
    assert box == []
    hand_over(world)
    assert code_of(box) == ErrorCode.NOT_COORDINATOR
    assert world.waits == []


def test_a_commit_is_refused_when_its_partition_goes_offline() -> None:
    world = replicated()
    box = world.commit({0: 7})
    index = partition_of("g", world.broker.image, world.broker.config)
    world.broker.partitions.take_offline(world.node.replica(OFFSETS_TOPIC, index))
    world.broker.changed.add(TopicPartition(OFFSETS_TOPIC, index))
    world.wake()
    assert code_of(box) == ErrorCode.NOT_COORDINATOR


def test_assignments_that_others_records_stand_for_are_not_handed_out() -> None:
    world = replicated()
    joined = world.enter()
    box = world.sync(joined.member_id, 1, {joined.member_id: b"all"})
    hand_over(world, is_told=False)
    cut_and_grow(world, to_offset=3)
    world.wake()
    assert box[0].error_code == ErrorCode.NOT_COORDINATOR
    assert box[0].assignment == b""


def test_a_static_member_that_came_back_is_refused_when_the_coordinator_moves() -> None:
    """Its answer waits for its record alone: nobody else would ever have answered it."""
    world = replicated()
    joined = world.enter(instance_id="i")
    world.sync(joined.member_id, 1, {joined.member_id: b"all"}, instance_id="i")
    world.commit_to_replicas()
    box = world.join(instance_id="i")
    assert box == []
    hand_over(world)
    assert box[0].error_code == ErrorCode.NOT_COORDINATOR


def test_what_is_committed_is_told_once() -> None:
    world = replicated()
    box = world.commit({0: 7})
    world.commit_to_replicas()
    world.commit_to_replicas()
    assert code_of(box) == ErrorCode.NONE
    assert world.groups.commits_total == 1
