"""KIP-1066: a cordoned broker gets nothing new, from nobody; what it has stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_missing import ON, create, grow
from tests.core.controller.test_reassignment import alter, move
from tests.core.controller.world import World

from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.coordination.groups.offsets_topic import offsets_topic
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RESOURCE_BROKER
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def set_cordon(world: World, broker_id: int, text: str | None = "*") -> Any:
    change = AlterableConfig(
        name="cordoned.log.dirs", config_operation=0 if text is not None else 1, value=text
    )
    resource = AlterConfigsResource(
        resource_type=RESOURCE_BROKER, resource_name=str(broker_id), configs=[change]
    )
    return world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]


def cluster(*closed: int, **settings: str) -> World:
    world = World(settings=settings)
    world.start(1, 2, 3)
    for broker_id in closed:
        assert set_cordon(world, broker_id).error_code == ErrorCode.NONE
    return world


@pytest.mark.parametrize("text", ["*", " *", "* ", "*\t"])
def test_blanks_around_the_value_count_for_nothing(text: str) -> None:
    world = cluster()
    assert set_cordon(world, 3, text).error_code == ErrorCode.NONE
    assert cordoned(world.image) == {3}


@pytest.mark.parametrize("placer", ["striped", "computed", "spread"])
def test_no_placer_uses_it_and_it_keeps_what_it_has(placer: str) -> None:
    world = cluster(**{"replica.placer.class.name": placer})
    create(world, partitions=6, factor=2)
    before = [world.partition("t", index).replicas for index in range(6)]
    assert any(3 in row for row in before)
    set_cordon(world, 3)
    assert cordoned(world.image) == {3}
    assert grow(world, 20).error_code == ErrorCode.NONE
    create(world, "u", partitions=8, factor=2)
    assert [world.partition("t", index).replicas for index in range(6)] == before
    new = [world.partition("t", index) for index in range(6, 20)]
    new += [world.partition("u", index) for index in range(8)]
    assert all(3 not in each.replicas for each in new)
    set_cordon(world, 3, None)
    assert create(world, "v", factor=3).error_code == ErrorCode.NONE


def test_a_refusal_names_who_is_cordoned() -> None:
    world = cluster(3)
    answer = create(world)
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.error_message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be "
        "reached because only 2 broker(s) are registered. No new replicas go "
        "to broker 3: cordoned (cordoned.log.dirs=*)."
    )
    nobody = create(cluster(1, 2, 3), factor=1)
    assert "No new replicas go to brokers 1, 2, 3" in nobody.error_message


def test_a_list_by_hand_brings_nothing_there() -> None:
    world = cluster(3)
    topic = CreatableTopic(
        name="m", num_partitions=-1, replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 3])],
    )  # fmt: skip
    answer = world.ask(CreateTopicsRequest(topics=[topic])).topics[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    said = "Broker 3 gets no new replicas: it is cordoned (cordoned.log.dirs=*)."
    assert answer.error_message == said
    world.create("t", [1, 2])
    refused = move(world, 1, 3)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, said
    )  # fmt: skip


def test_a_list_that_keeps_it_or_goes_back_to_it_is_taken() -> None:
    world = cluster()
    world.create("t", [1, 3])
    set_cordon(world, 3)
    assert move(world, 3, 1).error_code == ErrorCode.NONE
    assert move(world, 1, 2).error_code == ErrorCode.NONE
    assert move(world, cancel=True).error_code == ErrorCode.NONE
    assert sorted(world.partition("t").replicas) == [1, 3]


def test_missing_replicas_wait_for_it_to_be_open_again() -> None:
    world = cluster(3, **ON)
    assert create(world).error_code == ErrorCode.NONE
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing) == ([1, 2], 1)
    world.pass_time(3_000)
    assert world.partition("t").missing == 1
    set_cordon(world, 3, None)
    world.pass_time(600)
    assert world.partition("t").adding == (3,)
    alter(world, 1, 2, 3)
    assert not world.controller.state.short


@pytest.mark.parametrize(
    ("broker_id", "text", "words"),
    [
        (3, "/d/one", "folders cannot be cordoned one by one"),
        (3, "*,/d/one", "folders cannot be cordoned one by one"),
        (9, "*", "No node with id 9 found"),
    ],
)
def test_what_cannot_be_cordoned_is_refused(broker_id: int, text: str, words: str) -> None:
    answer = set_cordon(cluster(), broker_id, text)
    assert answer.error_code != ErrorCode.NONE
    assert words in answer.error_message


def test_the_offsets_topic_of_the_first_consumer_fits_the_brokers_that_are_open() -> None:
    world = cluster(3)
    topic = offsets_topic(world.image, world.controller.config)
    assert topic.replication_factor == 2
    answer = world.ask(CreateTopicsRequest(topics=[topic])).topics[0]
    assert answer.error_code == ErrorCode.NONE
