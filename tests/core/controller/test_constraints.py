"""R9: topics and partitions are created by placement constraints, observers included."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_cordoning import set_cordon
from tests.core.controller.test_missing import ON, create, grow
from tests.core.controller.test_rack_violations import racks
from tests.core.controller.test_reassignment import alter, move
from tests.core.controller.world import World

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.partitions import observer_placement as observing
from anabranch.core.controller.partitions.observer_placement import INTERVAL_MS
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.placement.constraints import in_racks
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

EAST_AND_WEST = "replicas=east:2,observers=west:1"


def world_of_four() -> World:
    world = World()
    racks(world, b1="east", b2="east", b3="west", b4="west")
    return world


def made(world: World, text: str = EAST_AND_WEST, **more: Any) -> Any:
    return create(world, confluent_placement_constraints=text, **{"factor": -1, **more})


def test_a_topic_is_created_by_its_constraints_and_grows_by_them() -> None:
    world = world_of_four()
    answer = made(world, partitions=2)
    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 2)
    assert grow(world, 4).error_code == ErrorCode.NONE
    for index in range(4):
        state = world.partition("t", index)
        assert sorted(state.replicas) == [1, 2] and sorted(state.isr) == [1, 2]
        assert state.observers == ((3,), (4,))[index % 2]
    assert [world.partition("t", index).replicas[0] for index in range(4)] == [1, 2, 1, 2]
    assert world.replayed() == world.image
    assert (
        from_snapshot(list(snapshot_records(world.image)), world.image.next_offset, 1)
        == world.image
    )


def test_a_factor_that_says_the_same_is_taken_and_another_one_is_not() -> None:
    world = world_of_four()
    assert made(world, factor=2).error_code == ErrorCode.NONE
    refused = create(world, "u", factor=3, confluent_placement_constraints=EAST_AND_WEST)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "require 2 replicas, and replication factor 3 was requested" in refused.error_message
    assert world.image.topic("u") is None


def test_constraints_that_cannot_be_met_name_rack_wanted_and_there() -> None:
    world = world_of_four()
    refused = made(world, "replicas=east:3")
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.error_message == (
        "The placement constraints want 3 replicas in rack east; brokers there that can get one: "
        "1, 2."
    )
    set_cordon(world, 3)
    set_cordon(world, 4)
    refused = made(world)
    assert "rack west; brokers there that can get one: none." in refused.error_message
    assert "No new replicas go to brokers 3, 4" in refused.error_message
    assert world.image.topic("t") is None


def test_a_text_that_cannot_be_read_is_refused() -> None:
    refused = made(world_of_four(), "replicas=east")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "write RACK:COUNT, as in east:2" in refused.error_message


def constrained(world: World, text: str | None, topic: str = "t") -> Any:
    change = AlterableConfig(
        name="confluent.placement.constraints",
        config_operation=1 if text is None else 0,
        value=text,
    )
    resource = AlterConfigsResource(
        resource_type=RESOURCE_TOPIC, resource_name=topic, configs=[change]
    )
    return world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]


def constrain(world: World, text: str | None, topic: str = "t") -> None:
    answer = constrained(world, text, topic)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def of_topic(world: World) -> dict[str, str]:
    return dict(world.image.config(RESOURCE_TOPIC, "t"))


@pytest.mark.parametrize("text", ["replicas=east:1,wset:1", "replicas=east:1,observers=wset:1"])
def test_a_rack_that_nobody_is_in_is_refused_and_the_ones_there_are_are_named(text: str) -> None:
    world = world_of_four()
    world.create("t", [1, 2])
    refused = constrained(world, text)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message == (
        "confluent.placement.constraints: no broker is in rack wset; known: east, west. Correct "
        "the name, or register a broker there first."
    )
    assert of_topic(world) == {}
    racks(world, b5="wset")
    constrain(world, text)
    assert of_topic(world) == {"confluent.placement.constraints": text}


def test_constraints_that_are_there_already_are_no_obstacle_to_other_settings() -> None:
    """Also once nobody is in their rack any more; a rack with too few brokers is taken."""
    world = world_of_four()
    world.create("t", [1, 2])
    constrain(world, "replicas=east:3")
    for broker_id in (1, 2):
        assert world.ask(UnregisterBrokerRequest(broker_id=broker_id)).error_code == ErrorCode.NONE
    change = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = AlterConfigsResource(
        resource_type=RESOURCE_TOPIC, resource_name="t", configs=[change]
    )
    answer = world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    assert answer.error_code == ErrorCode.NONE
    assert "known: west." in constrained(world, "replicas=east:2").error_message
    constrain(world, None)


def observers(world: World, name: str = "t") -> list[tuple[int, ...]]:
    topic = world.image.topic(name)
    assert topic is not None
    return [topic.partitions[index].observers for index in sorted(topic.partitions)]


def test_observers_follow_constraints_that_are_set_later_and_stay_when_they_are_gone() -> None:
    world = world_of_four()
    world.create("t", [1, 2], [2, 1])
    constrain(world, EAST_AND_WEST)
    world.pass_time(1_100)
    assert observers(world) == [(3,), (4,)]
    assert world.sentences("OBSERVERS_SET") == ["t-0 is observed by 3", "t-1 is observed by 4"]
    constrain(world, "replicas=east:2,observers=west:2")
    world.pass_time(1_100)
    assert [sorted(row) for row in observers(world)] == [[3, 4], [3, 4]]
    constrain(world, None)
    world.pass_time(1_100)
    assert [sorted(row) for row in observers(world)] == [[3, 4], [3, 4]]
    constrain(world, "replicas=east:2")
    world.pass_time(1_100)
    assert observers(world) == [(), ()]
    assert (
        ClusterState.of(world.image).racks.constrained == world.controller.state.racks.constrained
    )


def test_observers_wait_for_replicas_to_be_as_constrained_so_that_one_can_be_promoted() -> None:
    world = world_of_four()
    made(world)
    assert observers(world) == [(3,)]
    constrain(world, "replicas=east:1,west:1,observers=east:1")
    world.pass_time(1_100)
    assert observers(world) == [(3,)], "it has what a replica needs"
    move(world, 1, 3)
    assert world.partition("t").adding == (3,)
    alter(world, 1, 2, 3)
    assert (world.partition("t").replicas, observers(world)) == ((1, 3), [()])
    world.pass_time(1_100)
    assert observers(world) == [(2,)], "whoever was demoted observes"


def test_no_observer_is_put_on_a_broker_that_is_down_or_cordoned() -> None:
    world = world_of_four()
    world.create("t", [1, 2])
    set_cordon(world, 3)
    world.beat(4, want_fence=True)
    constrain(world, EAST_AND_WEST)
    world.pass_time(1_100)
    assert observers(world) == [()]
    set_cordon(world, 3, None)
    world.pass_time(1_100)
    assert observers(world) == [(3,)]


def test_many_partitions_change_paced() -> None:
    world = world_of_four()
    world.create("t", *[[1, 2]] * 150)
    constrain(world, EAST_AND_WEST)
    world.pass_time(600)
    assert sum(map(bool, observers(world))) == 100
    world.pass_time(600)
    assert sum(map(bool, observers(world))) == 150
    assert world.replayed() == world.image


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Looks end after four partitions; the replicas of each partition that was looked at."""
    found: list[int] = []

    def count(replicas: Any, racks: Any) -> Any:
        found.append(replicas)
        return in_racks(replicas, racks)

    monkeypatch.setattr(observing, "MOST_LOOKED", 4)
    monkeypatch.setattr(observing, "in_racks", count)
    return found


def test_a_large_topic_that_never_rests_keeps_no_other_waiting(looked: list[int]) -> None:
    world = world_of_four()
    world.create("t", *[[1, 2]] * 9)
    world.create("z", [1, 2])
    constrain(world, "replicas=east:2")
    constrain(world, EAST_AND_WEST, "z")
    for isr in ([1], [1, 2], [1]):
        assert observers(world, "z") == [()]
        alter(world, *isr)
        looked.clear()
        world.pass_time(500)
        assert 0 < len(looked) <= 2 * 4, "the replicas and the observers of four partitions"
    assert observers(world, "z") == [(3,)]


def test_what_changed_behind_a_look_is_looked_at_again_and_then_nothing_is(
    looked: list[int],
) -> None:
    world = world_of_four()
    world.create("t", *[[1, 2]] * 9)
    constrain(world, EAST_AND_WEST)
    world.pass_time(500)
    assert [index for index, row in enumerate(observers(world)) if row] == [0, 1, 2, 3]
    world.register(3, incarnation=2, rack="east")
    world.pass_time(4 * 500)
    assert set(observers(world)) == {(4,)}
    world.pass_time(6 * 500)
    looked.clear()
    world.pass_time(4 * 500)
    assert looked == []


def violations(world: World) -> int:
    state, fresh = world.controller.state, ClusterState.of(world.image)
    assert (state.racks.spreads, state.racks.constrained) == (
        fresh.racks.spreads, fresh.racks.constrained
    )  # fmt: skip
    return state.racks.violations(ignored_by_default=False)


def test_what_constraints_ask_for_is_no_rack_violation_and_anything_else_is_one() -> None:
    world = world_of_four()
    world.create("t", [1, 2], [1, 3])
    assert violations(world) == 1
    constrain(world, EAST_AND_WEST)
    assert violations(world) == 1, "the other one: 1 and 3 are not both in east"
    move(world, 1, 2, index=1)
    alter(world, 1, 3, 2, index=1)
    assert violations(world) == 0
    constrain(world, "replicas=east:1,west:1")
    assert violations(world) == 2
    constrain(world, None)
    assert violations(world) == 2, "both are in east alone, and there is west"
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert violations(world) == 0


def test_a_rack_that_changes_its_name_is_seen_by_constraints() -> None:
    world = world_of_four()
    made(world)
    assert violations(world) == 0
    world.register(2, incarnation=2, rack="north")
    assert violations(world) == 1


def test_constraints_wait_for_no_broker_that_is_missing() -> None:
    world = World(settings=ON)
    racks(world, b1="east", b2="west")
    refused = made(world)
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "2 replicas in rack east; brokers there that can get one: 1." in (refused.error_message)


def test_constraints_and_lists_by_hand_exclude_each_other() -> None:
    world = world_of_four()
    world.create("t", [1, 2])
    constrain(world, EAST_AND_WEST)
    assignment = CreatePartitionsAssignment(broker_ids=[1, 2])
    topic = CreatePartitionsTopic(name="t", count=2, assignments=[assignment])
    answer = world.ask(CreatePartitionsRequest(topics=[topic])).results[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "a manual assignment: omit one of them" in answer.error_message
    assert world.image.partition("t", 1) is None


def test_topics_with_constraints_that_come_and_go_leave_nothing_behind() -> None:
    """Not in what is settled, nor in any other duty of the controller."""
    world = world_of_four()
    made(world, name="stays")
    for number in range(30):
        made(world, name=f"t{number}")
        world.pass_time(INTERVAL_MS + 1)
        world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{number}")]))
        world.pass_time(INTERVAL_MS + 1)
    observers = world.controller.duties.observers
    assert set(observers._settled) == {"stays"}
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="stays")]))
    world.pass_time(INTERVAL_MS + 1)
    assert not observers._settled
