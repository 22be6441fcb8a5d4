"""Replicas move by adding, waiting, removing, and never below what they had (R16)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.controller.world import World

from anabranch.core.controller.moves.reassignment import Move, begun, reverted, settled
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

BEGUN = [
    ((3, 2, 1), (3, 6, 2, 1, 5), (3, 6, 2, 1, 5), (5, 6), ()),
    ((3, 2, 1, 0), (3, 1), (3, 1, 0, 2), (), (0, 2)),
    ((3, 2, 1, 0), (7, 3, 1, 9), (7, 3, 1, 9, 0, 2), (7, 9), (0, 2)),
    ((2, 3, 0, 1), (4, 5), (4, 5, 0, 1, 2, 3), (4, 5), (0, 1, 2, 3)),
    ((1, 2, 3), (3, 1, 2), (3, 1, 2), (), ()),
]
"""From Kafka's PartitionReassignmentReplicasTest: replicas, target; list, adding, removing."""


@pytest.mark.parametrize(("replicas", "target", "listed", "adding", "removing"), BEGUN)
def test_the_lists_while_replicas_move(
    replicas: tuple[int, ...], target: tuple[int, ...], listed: Any, adding: Any, removing: Any
) -> None:
    move = begun(replicas, target)
    assert move == Move(listed, adding, removing)
    assert move.target == target


def test_a_move_ends_when_all_who_stay_are_in_sync() -> None:
    move = begun((0, 1, 2), (3, 4, 5))
    assert settled(move, (0, 1, 2, 3, 4)) == (move, (0, 1, 2, 3, 4))
    assert settled(move, (0, 1, 2, 3, 4, 5)) == (Move((3, 4, 5)), (3, 4, 5))
    assert settled(move, (5, 3, 4)) == (Move((3, 4, 5)), (5, 3, 4))


REVERTED = [
    ((4, 5, 3, 2, 1), (4, 5), (4, 5, 2), (3, 2, 1), (2,), False),
    ((4, 5, 3, 2, 1), (4, 5), (4, 5), (3, 2, 1), (), True),
]
"""From Kafka's PartitionReassignmentRevertTest: list, adding, ISR; list, ISR, unclean. Kafka takes
the first replica for in sync in the last case; here an unclean election says who is."""


@pytest.mark.parametrize(("replicas", "adding", "isr", "back", "remains", "unclean"), REVERTED)
def test_a_move_taken_back(
    replicas: Any, adding: Any, isr: Any, back: Any, remains: Any, unclean: bool
) -> None:
    partition = PartitionImage(replicas, isr, isr[0], 0, 0, adding=adding)
    assert reverted(partition, elr_enabled=False) == (Move(back), remains, unclean)


ROWS = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(tuple)


@given(ROWS, st.lists(ROWS, min_size=1, max_size=4))
def test_whatever_is_asked_meanwhile_the_last_target_is_reached_and_the_way_back_is_known(
    replicas: tuple[int, ...], targets: list[tuple[int, ...]]
) -> None:
    move = Move(replicas)
    for target in targets:
        move = begun(move.replicas, target, move.adding)
        assert (move.target, sorted(move.original)) == (target, sorted(replicas))
    assert settled(move, move.replicas)[0] == Move(targets[-1])


# Requests.


@pytest.fixture
def world() -> World:
    world = World()
    world.start(1, 2, 3, 4, 5)
    world.create("t", [1, 2, 3], [2, 3, 1])
    return world


def move(
    world: World,
    *replicas: int,
    index: int = 0,
    topic: str = "t",
    cancel: bool = False,
    **more: Any,
) -> Any:
    wanted = ReassignablePartition(
        partition_index=index, replicas=None if cancel else list(replicas)
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[wanted])], **more
    )
    response = world.ask(request, 1)
    return response if response.error_code else response.responses[0].partitions[0]


def alter(world: World, *isr: int, index: int = 0, name: str = "t") -> Any:
    """What the leader is answered when it says who is in sync."""
    state = world.partition(name, index)
    asked = AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=-1) for each in isr],
    )
    topic = AlterPartitionRequestTopicData(
        topic_id=world.image.topic(name).topic_id,  # type: ignore[union-attr]
        partitions=[asked],
    )
    epoch = world.image.brokers[state.leader].epoch
    request = AlterPartitionRequest(broker_id=state.leader, broker_epoch=epoch, topics=[topic])
    return world.ask(request, 3).topics[0].partitions[0]


def listed(world: World, topics: Any = None) -> list[tuple[str, int, list[int]]]:
    response = world.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    return [
        (topic.name, each.partition_index, each.replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def test_replicas_are_added_then_those_that_go_are_removed(world: World) -> None:
    before = world.partition("t")
    assert move(world, 1, 4, 5).error_code == ErrorCode.NONE
    during = world.partition("t")
    assert (during.replicas, during.adding, during.removing) == ((1, 4, 5, 2, 3), (4, 5), (2, 3))
    assert (during.isr, during.leader) == ((1, 2, 3), 1)
    assert during.leader_epoch == before.leader_epoch
    assert listed(world) == [("t", 0, [1, 4, 5, 2, 3])]
    alter(world, 1, 2, 3, 4)
    assert world.partition("t").removing == (2, 3)
    answer = alter(world, 1, 2, 3, 4, 5)
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 4, 5])
    after = world.partition("t")
    assert (after.replicas, after.isr, after.adding, after.removing) == (
        (1, 4, 5), (1, 4, 5), (), (),
    )  # fmt: skip
    assert after.leader_epoch == before.leader_epoch + 1, "who was dropped learns it by an epoch"
    assert listed(world) == []
    assert world.sentences("REASSIGNMENT_DONE") == [
        "the move of t-0 is complete: its replicas are 1, 4, 5, all in sync, and 2, 3 left"
    ]


def test_a_leader_that_goes_leads_until_the_end_and_is_told(world: World) -> None:
    move(world, 4, 5)
    answer = alter(world, 1, 2, 3, 4, 5)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    after = world.partition("t")
    assert (after.replicas, after.leader, after.isr) == ((4, 5), 4, (4, 5))


def test_a_new_order_and_fewer_replicas_happen_at_once(world: World) -> None:
    move(world, 3, 1, 2)
    assert world.partition("t").replicas == (3, 1, 2)
    assert world.partition("t").leader == 1
    move(world, 3, 1)
    after = world.partition("t")
    assert (after.replicas, after.isr, after.leader) == ((3, 1), (1, 3), 1)
    assert world.sentences("REASSIGNMENT_DONE")[-1] == "t-0 is on 3, 1 instead of 3, 1, 2"


def test_fewer_replicas_wait_until_those_that_stay_are_in_sync(world: World) -> None:
    alter(world, 1, 2)
    move(world, 1, 3)
    assert world.partition("t").removing == (2,)
    assert world.partition("t").isr == (1, 2)
    alter(world, 1, 2, 3)
    assert world.partition("t").replicas == (1, 3)


def test_a_move_may_be_taken_back(world: World) -> None:
    move(world, 4, 5)
    alter(world, 1, 2, 3, 4)
    assert move(world, cancel=True).error_code == ErrorCode.NONE
    after = world.partition("t")
    assert (after.replicas, after.isr, after.leader) == ((1, 2, 3), (1, 2, 3), 1)
    assert (after.adding, after.removing) == ((), ())
    assert move(world, cancel=True).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


MOVES = [each for each in itertools.permutations((1, 2, 3, 4, 5), 3) if set(each) != {1, 2, 3}]


@pytest.mark.parametrize("target", MOVES, ids=str)
def test_a_move_taken_back_restores_the_order_of_the_replicas(
    world: World, target: tuple[int, ...]
) -> None:
    """Beyond Kafka, which keeps no former order: it leaves those that came out of the target, and
    those that were to go follow."""
    move(world, *target)
    assert move(world, cancel=True).error_code == ErrorCode.NONE
    assert world.partition("t").replicas == (1, 2, 3)


TARGETS = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)


@given(st.lists(TARGETS, min_size=1, max_size=4))
def test_whatever_was_asked_meanwhile_a_move_taken_back_restores_all(
    targets: list[tuple[int, ...]],
) -> None:
    """Of a move that is over nothing is remembered, and a snapshot has what is."""
    world = World()
    world.start(1, 2, 3, 4, 5)
    world.create("t", [1, 2, 3])
    before = (1, 2, 3)
    for target in targets:
        assert move(world, *target).error_code == ErrorCode.NONE
        after = world.partition("t")
        if not (after.adding or after.removing):
            before = after.replicas
        image = world.image
        again = from_snapshot(snapshot_records(image), image.next_offset, image.epoch)
        assert again.partition("t", 0) == world.replayed().partition("t", 0) == after
    if after.adding or after.removing:
        assert move(world, cancel=True).error_code == ErrorCode.NONE
    assert (world.partition("t").replicas, world.partition("t").former) == (before, ())


@pytest.mark.parametrize("targets", [[(4, 5), (4, 5)], [(4, 5), (5, 3)], [(4, 5), (4, 3), (5, 1)]])
def test_a_move_in_place_of_another_is_taken_back_to_what_was_there_before_both(
    world: World, targets: list[tuple[int, ...]]
) -> None:
    for target in targets:
        assert move(world, *target).error_code == ErrorCode.NONE
    assert world.partition("t").replication_factor == 3
    assert move(world, cancel=True).error_code == ErrorCode.NONE
    after = world.partition("t")
    assert (after.replicas, after.isr) == ((1, 2, 3), (1, 2, 3))
    assert (after.adding, after.removing) == ((), ())


def test_a_move_is_not_taken_back_at_the_price_of_records(world: World) -> None:
    move(world, 4, 5, 1)
    for broker_id in (2, 3):
        world.beat(broker_id, want_fence=True)
    alter(world, 1, 4)
    world.beat(1, want_fence=True)
    assert world.partition("t").isr == (4,)
    answer = move(world, cancel=True)
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert answer.error_message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader "
        "election."
    )


REFUSED = [
    ({"topic": "x"}, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named x."),
    ({"index": 9}, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9."),
    ({}, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    ({}, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9, but no such broker"),
    ({}, (1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker -1, but no such broker"),
    ({}, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
    (
        {"allow_replication_factor_change": False}, (1, 2),
        ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 3 to 2",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "replicas", "code", "said"), REFUSED)
def test_each_refusal_has_its_code_and_text(
    world: World, changes: Any, replicas: tuple[int, ...], code: ErrorCode, said: str
) -> None:
    before = world.image.offset
    answer = move(world, *replicas, **changes)
    assert answer.error_code == code
    assert said in answer.error_message
    assert world.image.offset == before


def test_the_factor_of_a_move_under_way_is_that_of_its_target(world: World) -> None:
    move(world, 4, 5, 1)
    assert move(world, 5, 4, 2, allow_replication_factor_change=False).error_code == 0
    assert move(world, 5, 4, allow_replication_factor_change=False).error_code == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )


def test_a_partition_named_twice_moves_once(world: World) -> None:
    both = [
        ReassignablePartition(partition_index=0, replicas=replicas)
        for replicas in ([1, 4, 5], [5, 4, 1])
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=both)]
    )
    first, second = world.ask(request, 1).responses[0].partitions
    assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_REQUEST)
    assert world.partition("t").replicas == (1, 4, 5, 2, 3)


def test_only_what_moves_is_listed(world: World) -> None:
    move(world, 2, 4, 5, index=1)
    asked = [
        ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 1, 7]),
        ListPartitionReassignmentsTopics(name="x", partition_indexes=[0]),
    ]
    assert listed(world, asked) == [("t", 1, [2, 4, 5, 1, 3])]
    assert world.replayed().partition("t", 1) == world.partition("t", 1)


def test_a_fenced_target_is_waited_for(world: World) -> None:
    world.beat(5, want_fence=True)
    assert move(world, 1, 2, 5).error_code == ErrorCode.NONE
    assert world.partition("t").adding == (5,)
    assert world.partition("t").isr == (1, 2, 3)


def test_a_move_ends_although_somebody_who_goes_is_down(world: World) -> None:
    move(world, 4, 5)
    alter(world, 1, 2, 4)
    world.beat(2, want_fence=True)
    assert world.partition("t").removing == (1, 2, 3)
    alter(world, 1, 4, 5)
    after = world.partition("t")
    assert (after.replicas, after.leader) == ((4, 5), 4)
