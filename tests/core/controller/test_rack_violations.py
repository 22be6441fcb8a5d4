"""K5, R10: what is in fewer racks than it could be, and what no broker has, is counted as it goes."""

from __future__ import annotations

import pytest
from tests.core.controller.test_missing import ON, create
from tests.core.controller.test_reassignment import alter, move
from tests.core.controller.world import World

from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.placement.racks import spread_of


def counted(world: World) -> tuple[int, int]:
    """Rack violations and missing replicas; the same when they are counted afresh."""
    state, fresh = world.controller.state, ClusterState.of(world.image)
    assert (state.racks.spreads, state.missing_count) == (fresh.racks.spreads, fresh.missing_count)
    told = world.controller.statistics()
    assert told["missing_replicas"] == state.missing_count
    return told["rack_violations"], state.missing_count


def racks(world: World, **rack_of: str) -> None:
    for name, rack in rack_of.items():
        broker_id = int(name.removeprefix("b"))
        world.register(broker_id, rack=rack)
        world.beat(broker_id)


@pytest.mark.parametrize(
    ("row", "there", "violates"),
    [
        (["a", "b", "c"], 3, False),
        (["a", "a", "b"], 2, False),
        (["a", "a", "b"], 3, True),
        (["a", "a"], 2, True),
        (["a", "a"], 1, False),
        ([None, "a", None], 3, False),
        ([None, None], 0, False),
    ],
)
def test_a_list_violates_racks_when_it_could_be_in_more(
    row: list[str | None], there: int, violates: bool
) -> None:
    assert spread_of(row).violates(there) is violates


def test_a_rack_that_comes_makes_violations_of_lists_that_were_as_good_as_could_be() -> None:
    world = World()
    racks(world, b1="a", b2="a", b3="b")
    world.create("t", [1, 2], [1, 3])
    world.create("u", [1, 2, 3])
    assert counted(world) == (1, 0)
    steps = world.controller.state.steps
    racks(world, b4="c")
    assert counted(world) == (2, 0)
    assert world.controller.state.steps == steps, "no partition was looked at"


def test_a_move_counts_as_where_it_ends() -> None:
    world = World()
    racks(world, b1="a", b2="a", b3="b")
    world.create("t", [1, 2])
    move(world, 1, 3)
    assert counted(world) == (0, 0), "it is on its way"
    alter(world, 1, 2, 3)
    assert world.partition("t").replicas == (1, 3)
    assert counted(world) == (0, 0)


def test_a_broker_that_shows_another_rack_or_is_forgotten_is_counted_anew() -> None:
    world = World()
    racks(world, b1="a", b2="b")
    world.create("t", [1, 2], [1, 2])
    assert counted(world) == (0, 0)
    world.register(2, incarnation=2, rack="a")
    racks(world, b3="c")
    assert counted(world) == (2, 0)


def test_filling_that_shares_a_rack_is_a_violation_and_missing_counts_replicas() -> None:
    world = World(settings=ON)
    racks(world, b1="a", b2="b")
    create(world, partitions=2, factor=4)
    assert counted(world) == (0, 4)
    world.register(3, rack="b")
    world.beat(3)
    world.pass_time(600)
    assert counted(world) == (0, 2)
    assert "a rack violation" in world.sentences("MISSING_REPLICA_FILLED")[0]
    racks(world, b4="c")
    assert counted(world) == (2, 2)
