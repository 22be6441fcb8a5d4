"""Placements that cannot be are refused with place and remedy, and take nothing (F3, F5, R10)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

PLACER = "replica.placer.class.name"


def world_of(racks: dict[int, str | None], **settings: str) -> World:
    world = World(settings=settings)
    for broker_id, rack in racks.items():
        world.register(broker_id, rack=rack)
        world.beat(broker_id)
    return world


def topic(name: str, factor: int, placer: str, partitions: int = 2) -> CreatableTopic:
    config = CreatableTopicConfig(name=PLACER, value=placer)
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, configs=[config]
    )


def create(world: World, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    return world.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only)).topics


@pytest.mark.parametrize("validate_only", [True, False])
def test_computed_names_the_brokers_without_a_rack_and_what_to_do(validate_only: bool) -> None:
    world = world_of({1: "a", 2: None, 3: "b", 4: None})
    before = world.image.offset
    (answer,) = create(world, topic("t", 2, "computed"), validate_only=validate_only)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "needs a rack for every broker, and these have none: 2, 4." in answer.error_message
    assert "or ignore.rack.assignment=true for the topic." in answer.error_message
    assert world.image.offset == before


def test_a_topic_may_be_placed_as_if_there_were_no_racks() -> None:
    world = world_of({1: "a", 2: None, 3: "b", 4: None})
    asked = topic("t", 2, "computed")
    asked.configs.append(CreatableTopicConfig(name="ignore.rack.assignment", value="true"))
    (answer,) = create(world, asked)
    assert answer.error_code == ErrorCode.NONE
    racks_matter = create(world, topic("other", 2, "computed"))
    assert racks_matter[0].error_code == ErrorCode.INVALID_REQUEST, "of this topic alone"


@pytest.mark.parametrize("placer", ["striped", "spread"])
def test_the_others_take_brokers_without_a_rack_for_one_rack(placer: str) -> None:
    world = world_of({1: "a", 2: None, 3: "b", 4: None})
    (answer,) = create(world, topic("t", 3, placer, partitions=8))
    assert answer.error_code == ErrorCode.NONE
    for index in range(8):
        assert len({2, 4} & set(world.partition("t", index).replicas)) == 1


@pytest.mark.parametrize("placer", ["striped", "computed", "spread"])
@pytest.mark.parametrize("factor", [4, 32_767])
def test_more_replicas_than_brokers(placer: str, factor: int) -> None:
    world = world_of({1: "a", 2: "b", 3: "c"})
    before = world.image.offset
    (answer,) = create(world, topic("t", factor, placer))
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (
        f"The target replication factor of {factor} cannot be reached because only 3 broker(s) "
        "are registered." in answer.error_message
    )
    assert world.image.offset == before


@pytest.mark.parametrize("placer", ["striped", "computed", "spread"])
def test_more_replicas_than_racks_are_placed(placer: str) -> None:
    world = world_of({1: "a", 2: "a", 3: "b"})
    (answer,) = create(world, topic("t", 3, placer))
    assert answer.error_code == ErrorCode.NONE
    assert sorted(world.partition("t").replicas) == [1, 2, 3]


def test_what_is_refused_takes_nothing_from_what_is_not() -> None:
    racks = dict.fromkeys((1, 2, 3, 4, 5))
    alone, beside = world_of(racks), world_of(racks)
    create(alone, topic("good", 3, "computed", 7))
    answers = create(beside, topic("bad", 6, "computed", 4), topic("good", 3, "computed", 7))
    assert {each.name: each.error_code for each in answers} == {
        "bad": ErrorCode.INVALID_REPLICATION_FACTOR,
        "good": ErrorCode.NONE,
    }
    assert beside.image.placement_cursor == alone.image.placement_cursor == 7
    for index in range(7):
        lists = [each.partition("good", index).replicas for each in (alone, beside)]
        assert lists[0] == lists[1]


def test_a_broker_that_is_down_is_used_and_never_leads() -> None:
    world = world_of({1: "a", 2: "b", 3: "c"})
    world.beat(2, want_fence=True)
    for placer in ("striped", "spread"):
        create(world, topic(placer, 3, placer, partitions=6))
        for index in range(6):
            state = world.partition(placer, index)
            assert sorted(state.replicas) == [1, 2, 3]
            assert state.replicas[0] != 2
            assert sorted(state.isr) == [1, 3]
