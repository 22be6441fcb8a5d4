"""A coordinator that is deposed: what its members wait for is refused, at once, and never told.

Found by chaos (seed 3004): frozen over its session, a coordinator woke as a follower; its log was
cut and grew under its successor past the offset of a commit that waited, and the commit was
acknowledged, though it was nowhere.
"""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import take_offline
from tests.core.coordination.groups.group_world import GroupWorld
from tests.core.coordination.groups.test_offsets import replicated

from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.loader import Loader
from anabranch.core.coordination.groups.offset_records import nothing_said, offset_record
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from anabranch.core.errors import ErrorCode, StorageFault
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
    world.broker.changed[TopicPartition(OFFSETS_TOPIC, index)] = None


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
    take_offline(world.broker.partitions, world.node.replica(OFFSETS_TOPIC, index))
    world.broker.changed[TopicPartition(OFFSETS_TOPIC, index)] = None
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


def second_member(world) -> tuple[str, str]:
    """A stable group of two in generation 2: the leader's id and the other's."""
    first, _ = stable(world)
    second = world.join(world.join().member_id)
    world.join(first)
    other = second[0].member_id
    world.sync(first, 2, {first: b"1", other: b"2"})
    world.sync(other, 2)
    world.commit_to_replicas()
    return first, other


def test_a_member_that_joins_again_hears_its_generation_once_a_record_of_now_is_committed() -> None:
    """It may have been in a later one, at another coordinator, before it asked."""
    world = replicated()
    _, other = second_member(world)
    box = world.join(other)
    assert box == []
    world.commit_to_replicas()
    assert (box[0].error_code, box[0].generation_id) == (0, 2)
    assert world.sync(other, 2).assignment == b"2"
    assert world.state() == "Stable"


def test_while_assignments_are_awaited_it_hears_so_once_a_record_of_now_is_committed() -> None:
    """Also the leader, whose answer was lost on the way; what was written before proves nothing."""
    world = replicated()
    first = world.enter().member_id
    assigned = world.sync(first, 1, {first: b"all"})
    box = world.join(first)
    index = partition_of("g", world.broker.image, world.broker.config)
    replica = world.node.replica(OFFSETS_TOPIC, index)
    replica.follower_fetched(2, replica.log.end_offset - 1)
    world.broker.changed[TopicPartition(OFFSETS_TOPIC, index)] = None
    world.wake()
    assert assigned[0].assignment == b"all"
    assert box == []
    world.commit_to_replicas()
    assert (box[0].error_code, box[0].generation_id, box[0].leader) == (0, 1, first)
    assert len(box[0].members) == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_a_member_that_joins_a_deposed_coordinator_again_is_refused(is_told) -> None:
    """The simulator's seeds 35197 and 406433: frozen, or cut off, over its session, it told members
    the generation that it remembered."""
    world = replicated()
    _, other = second_member(world)
    box = world.join(other)
    hand_over(world, is_told=is_told)
    if not is_told:
        cut_and_grow(world, to_offset=20)
        world.wake()
    assert box[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_member_that_joins_a_coordinator_whom_nobody_hears_is_sent_to_look_elsewhere() -> None:
    world = replicated()
    _, other = second_member(world)
    box = world.join(other)
    world.advance(world.broker.config.offsets_commit_timeout_ms - 1)
    assert box == []
    world.advance(1)
    assert box[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.commit_to_replicas()
    assert world.heartbeat(other, 2) == 0, "it is a member all the same"


def test_a_generation_that_was_read_above_the_high_watermark_is_told_once_it_is_committed() -> None:
    """Another failover may still take it back, and begin it anew with other assignments."""
    world = replicated()
    first, other = second_member(world)
    world.join(first)
    world.join(other)
    world.sync(first, 3, {first: b"2", other: b"1"})
    world.restart()
    assert world.group().generation_id == 3
    box = world.join(other)
    assert box == []
    world.commit_to_replicas()
    assert box[0].generation_id == 3


def test_what_proves_a_leadership_says_nothing_to_who_reads_the_log() -> None:
    world = replicated()
    _, other = second_member(world)
    world.join(other)
    world.commit_to_replicas()
    world.restart()
    group = world.group()
    assert (group.generation_id, len(group.members), group.offsets) == (2, 2, {})
    record = nothing_said("gone", world.node.now_ms)
    index = partition_of("gone", world.broker.image, world.broker.config)
    world.groups.shards[index].write([record], world.node.now_ms, lambda _now_ms: None)
    world.restart()
    assert world.group("gone") is None


def test_a_join_that_cannot_be_proven_is_refused() -> None:
    """With too few replicas in sync nobody's assignment could be written either."""
    world = replicated()
    _, other = second_member(world)
    for index in range(3):
        world.node.replica(OFFSETS_TOPIC, index).min_insync_replicas = 2
        world.node.replica(OFFSETS_TOPIC, index).take_in_sync((1,))
    assert world.join(other).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.groups.timers.next_due_ms() > world.broker.steady_ms + 5_000, "no timer is left"


def test_what_is_committed_is_told_once() -> None:
    world = replicated()
    box = world.commit({0: 7})
    world.commit_to_replicas()
    world.commit_to_replicas()
    assert code_of(box) == ErrorCode.NONE
    assert world.groups.commits_total == 1


def test_groups_that_are_read_at_once_in_part_are_not_served(monkeypatch):
    world = GroupWorld(offsets_partitions=1)
    world.commit({0: 7})
    world.groups.__init__(world.broker)
    world.groups.follow_leadership(world.node.now_ms)
    (shard,) = world.groups.to_load
    whole = Loader.steps

    def steps(loader, now_ms):
        yield from whole(loader, now_ms)
        raise StorageFault("the disk is gone")

    monkeypatch.setattr(Loader, "steps", steps)
    world.groups.load(world.node.now_ms)
    assert [replica for replica, _ in world.broker.faults] == [shard.replica]
    assert world.commit_codes({0: 8}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


def test_what_is_committed_together_is_done_one_after_the_other() -> None:
    world = replicated()
    stable(world)
    shard, done = world.group().shard, []

    def effect(number: int) -> None:
        done.append(number)
        shard.write([record], world.node.now_ms, lambda _: None)
        done.append(number)

    record = nothing_said("g", world.node.now_ms)
    for number in range(50):
        shard.write([record], world.node.now_ms, lambda _, number=number: effect(number))
    world.commit_to_replicas()
    shard.catch_up(world.node.now_ms)
    assert done == [number for number in range(50) for _ in range(2)]
