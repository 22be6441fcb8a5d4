"""R9: topics and partitions are created by placement constraints, observers included."""

from __future__ import annotations

from typing import Any

from tests.core.controller.test_cordoning import set_cordon
from tests.core.controller.test_missing import create, grow
from tests.core.controller.test_rack_violations import racks
from tests.core.controller.world import World

from anabranch.core.controller.snapshot import from_snapshot, snapshot_records
from anabranch.core.errors import ErrorCode

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
    assert from_snapshot(list(snapshot_records(world.image)), world.image.next_offset, 1) == world.image


def test_a_factor_that_says_the_same_is_taken_and_another_one_is_not() -> None:
    world = world_of_four()
    assert made(world, factor=2).error_code == ErrorCode.NONE
    refused = create(world, "u", factor=3, confluent_placement_constraints=EAST_AND_WEST)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "make 2 replica(s), and replication factor 3 was asked for" in refused.error_message
    assert world.image.topic("u") is None


def test_constraints_that_cannot_be_met_name_rack_wanted_and_there() -> None:
    world = world_of_four()
    refused = made(world, "replicas=east:3")
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.error_message == (
        "The placement constraints want 3 replica(s) in rack east; brokers there that can be given "
        "one: 1, 2."
    )
    set_cordon(world, 3)
    set_cordon(world, 4)
    refused = made(world)
    assert "rack west; brokers there that can be given one: none." in refused.error_message
    assert "Broker(s) 3, 4 get nothing new" in refused.error_message
    assert world.image.topic("t") is None


def test_a_text_that_cannot_be_read_is_refused() -> None:
    refused = made(world_of_four(), "replicas=east")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "write RACK:COUNT, as in east:2" in refused.error_message
