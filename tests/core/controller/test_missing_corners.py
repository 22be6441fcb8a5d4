"""Corner cases of missing replicas that decisions 25 and 26 name (K1, K4, K6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_missing import ON, cluster, create, grow, shape
from tests.core.controller.test_reassignment import move
from tests.core.controller.world import World

from anabranch.core.api.metadata_view import View, partition_view
from anabranch.core.controller.topics.assignments import MOST_MISSING
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest


def asked(world: World, name: str, factor: int = 3, **more: Any) -> Any:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
    request = CreateTopicsRequest(topics=[topic], **more)
    return world.ask(request, 7).topics[0]


def test_more_than_three_may_be_missing() -> None:
    world = cluster(1, 2)
    create(world, factor=7)
    seen = partition_view(world.image, 0, world.partition("t"), View("PLAINTEXT"))
    assert seen.replica_nodes[2:] == [-1, -2, -3, -4, -5]
    assert len(set(seen.replica_nodes)) == 7


def test_a_factor_far_beyond_the_brokers_is_refused() -> None:
    """Each answer about the topic names every missing replica of every partition."""
    world = cluster(1, 2)
    refused = asked(world, "t", factor=2 + MOST_MISSING + 1)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert f"at most {MOST_MISSING} replicas of a partition can be missing" in refused.error_message
    assert world.image.topic("t") is None
    assert asked(world, "t", factor=2 + MOST_MISSING).error_code == ErrorCode.NONE


def test_validate_only_promises_what_creation_does() -> None:
    world = cluster(1, 2)
    before = world.image.offset
    checked = asked(world, "t", validate_only=True)
    assert (checked.error_code, checked.replication_factor) == (ErrorCode.NONE, 3)
    assert (world.image.offset, world.image.topic("t")) == (before, None)
    done = asked(world, "t")
    assert (done.error_code, done.replication_factor) == (ErrorCode.NONE, 3)


def test_validate_only_says_the_refusal_of_creation_too() -> None:
    world = cluster(1, min_insync_replicas="2")
    world.controller.config = world.controller.static_config.with_dynamic(
        {"min.insync.replicas": "2", "enable.under.replicated.topic.creation": "true"}, {}
    )
    answers = [asked(world, "t", validate_only=each) for each in (True, False)]
    assert {each.error_code for each in answers} == {ErrorCode.INVALID_REPLICATION_FACTOR}
    assert answers[0].error_message == answers[1].error_message


def test_a_list_by_hand_has_brokers_alone() -> None:
    world = cluster(1, 2)
    by_hand = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, -1])
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[by_hand]
    )
    answer = world.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "includes broker -1, but no such broker is registered" in answer.error_message
    assert world.image.topic("t") is None


def test_a_move_has_brokers_alone() -> None:
    world = cluster(1, 2)
    create(world)
    assert move(world, 1, 2, -1).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert shape(world) == (2, 0, 1, 3)


@pytest.mark.parametrize("name", ["t", "__consumer_offsets"])
def test_the_default_factor_and_internal_topics_follow_the_same_rule(name: str) -> None:
    world = World(settings={**ON, "default.replication.factor": "3"})
    world.start(1, 2)
    answer = asked(world, name, -1)
    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 3)
    state = world.partition(name)
    assert (sorted(state.replicas), state.missing) == ([1, 2], 1)


def test_a_broker_that_is_unregistered_stays_in_the_lists() -> None:
    world = cluster(1, 2)
    create(world)
    world.beat(2, want_fence=True)
    world.ask(UnregisterBrokerRequest(broker_id=2))
    assert 2 not in world.image.brokers
    assert sorted(world.partition("t").replicas) == [1, 2]
    assert shape(world) == (2, 0, 1, 3)
    seen = partition_view(world.image, 0, world.partition("t"), View("PLAINTEXT"))
    assert sorted(seen.offline_replicas) == [-1, 2]


def test_a_policy_class_is_skipped() -> None:
    world = cluster(1, 2, **{"create.topic.policy.class.name": "org.example.Policy"})
    answer = create(world)
    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 3)


def test_missing_replicas_are_counted_and_count_down() -> None:
    world = cluster(1, 2)
    create(world, partitions=4, factor=4)
    assert world.controller.state.missing_count == 8
    world.start(3)
    world.pass_time(600)
    assert world.controller.state.missing_count == 4


def test_only_brokers_stand_in_what_brokers_read() -> None:
    world = cluster(1, 2)
    create(world, factor=4)
    grow(world, 2)
    for index in range(2):
        state = world.partition("t", index)
        lists = (state.replicas, state.isr, state.elr, state.adding, state.removing)
        assert all(each > 0 for row in lists for each in row)
        assert len(state.directories) == len(state.replicas)


def test_who_has_one_already_gets_no_second() -> None:
    world = cluster(1, 2)
    create(world, factor=4)
    world.beat(2, want_fence=True)
    world.beat(2)
    world.pass_time(2_000)
    assert shape(world) == (2, 0, 2, 4)


def test_fenced_brokers_fill_nothing_before_they_are_active() -> None:
    world = cluster(1, 2)
    create(world)
    world.register(3)
    world.pass_time(2_000)
    assert shape(world) == (2, 0, 1, 3)
    world.beat(3)
    world.pass_time(600)
    assert shape(world) == (3, 1, 0, 3)
