"""Topics that ignore racks have no rack violations: the metric counts what descriptions show."""

from __future__ import annotations

import random

import pytest
from tests.core.controller.test_rack_violations import counted, racks
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from anabranch.core.placement.constraints import SETTING, read_constraints
from anabranch.core.placement.racks import spread_of
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

IGNORES = "ignore.rack.assignment"


def put(world: World, kind: int, resource: str, name: str, value: str | None) -> None:
    """Set a setting of a topic, or of all brokers; None takes it away."""
    change = AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
    altered = AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[change]
    )  # fmt: skip
    [answer] = world.ask(IncrementalAlterConfigsRequest(resources=[altered])).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def described(world: World, default: str = "false") -> int:
    """Violations as `topics describe --rack-violations` counts them, by each topic's settings."""
    image = world.image
    racks_of = {each.broker_id: each.rack for each in image.brokers.values()}
    there = len({rack for rack in racks_of.values() if rack})
    default = image.config(RESOURCE_BROKER, "").get(IGNORES, default)
    found = 0
    for topic in image.topics_by_id.values():
        own = image.config(RESOURCE_TOPIC, topic.name)
        constraints = read_constraints(own.get(SETTING, ""))
        wanted = None if constraints is None else constraints.replicas
        if wanted is not None or own.get(IGNORES, default) != "true":
            found += sum(
                spread_of(map(racks_of.get, each.replicas), wanted).violates(there)
                for each in topic.partitions.values()
            )
    return found


def test_a_topic_that_ignores_racks_is_left_out_as_long_as_it_does() -> None:
    world = World()
    racks(world, b1="a", b2="a", b3="b")
    world.create("t", [1, 2], [2, 1], ignore_rack_assignment="true")
    assert counted(world) == (0, 0)
    put(world, RESOURCE_TOPIC, "t", IGNORES, "false")
    assert counted(world) == (2, 0)
    put(world, RESOURCE_TOPIC, "t", IGNORES, "true")
    put(world, RESOURCE_TOPIC, "t", SETTING, "replicas=a:1,b:1")
    assert counted(world) == (2, 0), "constraints count more"
    put(world, RESOURCE_TOPIC, "t", SETTING, None)
    assert counted(world) == (0, 0)


@pytest.mark.parametrize("of_the_file", [False, True])
def test_the_default_holds_for_topics_that_set_nothing_and_costs_nothing(
    of_the_file: bool,
) -> None:
    world = World(settings={IGNORES: "true"} if of_the_file else {})
    racks(world, b1="a", b2="a", b3="b")
    world.create("t", [1, 2])
    world.create("u", [1, 2], ignore_rack_assignment="false")
    assert counted(world) == (1 if of_the_file else 2, 0)
    steps = world.controller.state.steps
    for value, left in (("true", 1), ("false", 2)):
        put(world, RESOURCE_BROKER, "", IGNORES, value)
        assert counted(world) == (left, 0)
    assert world.controller.state.steps == steps, "no partition was looked at"


@pytest.mark.parametrize("seed", range(8))
def test_the_count_agrees_with_descriptions_whatever_changes(seed: int) -> None:
    rng = random.Random(seed)
    world = World(seed)
    racks(world, b1="a", b2="a", b3="b")
    for incarnation in range(2, 60):
        name = rng.choice(["t", "u", "v"])
        change = rng.randrange(6)
        if world.image.topic(name) is None:
            world.create(name, [1, 2], [1, 3], [3, 2])
        elif change == 0:
            world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        elif change == 1:
            put(world, RESOURCE_BROKER, "", IGNORES, rng.choice(["true", "false", None]))
        elif change == 2:
            put(world, RESOURCE_TOPIC, name, SETTING, rng.choice(["replicas=a:2", None]))
        elif change == 3:
            world.register(4, incarnation=incarnation, rack=rng.choice("ac"))
            world.beat(4)
        else:
            put(world, RESOURCE_TOPIC, name, IGNORES, rng.choice(["true", "false", None]))
        assert counted(world)[0] == described(world)
