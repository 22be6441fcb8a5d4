"""Rounds of copying and removal among brokers, stores and clocks that fail."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.remote.remote_world import World

STEPS = 600


@pytest.mark.parametrize("seed", range(30))
def test_no_record_is_lost_and_no_garbage_stays(seed):
    world = World(Random(seed))
    for _ in range(STEPS):
        world.step()
        world.check()
    world.settle()
