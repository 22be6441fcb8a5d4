"""Who has the records of a partition that nobody leads: whoever would be elected, nobody else."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.partitions.record_holders import awaited, holders


@pytest.mark.parametrize("elr", [True, False], ids=["elr", "no elr"])
@pytest.mark.parametrize("minimum", ["1", "2"])
@pytest.mark.parametrize("order", [*permutations((1, 2, 3))])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_partition_is_led_again_by_any_of_them(
    elr: bool, minimum: str, order: tuple[int, ...], back: int
) -> None:
    world = World()
    if not elr:
        world.level("eligible.leader.replicas.version", 0)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], min_insync_replicas=minimum)
    for broker_id in order:
        world.beat(broker_id, want_fence=True)
    state = world.partition("t")
    assert state.leader == -1
    known = holders(state.isr, state.elr, state.last_known_elr, state.replicas)
    assert 0 < len(known) < 3
    world.beat(back)
    assert world.partition("t").leader == (back if back in known else -1)


def test_where_nobody_is_known_it_may_be_any_replica() -> None:
    assert holders((), (), (2,), (1, 2, 3)) == (2,)
    assert holders((), (), (), (1, 2, 3)) == (1, 2, 3)
    assert awaited((1, 2)) == "brokers 1, 2 to be back"
