"""Rounds of copying and removal among brokers, stores and clocks that fail."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.remote.remote_kit import KEY, lineage, local
from tests.core.remote.remote_world import World

from anabranch.core.remote.facts import Facts
from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.rounds import (
    Leading,
    LocalView,
    LookAtLog,
    RaiseLogStart,
    ReadFacts,
    one_round,
)
from anabranch.core.remote.unfinished import Removals

STEPS = 600


@pytest.mark.parametrize("seed", range(30))
def test_no_record_is_lost_and_no_garbage_stays(seed):
    world = World(Random(seed))
    for _ in range(STEPS):
        world.step()
        world.check()
    world.settle()


@pytest.mark.parametrize(("high_watermark", "raised"), [(20, 16), (16, 16), (12, 12)])
def test_the_local_log_begins_no_later_than_what_its_leader_knows_to_be_committed(
    high_watermark, raised
):
    """After an unclean election it may know of less than was committed once."""
    steps = one_round(Leading("cluster", KEY, 1, Removals(), set()))
    segments = tuple(local(10, 20))
    view = LocalView(
        lineage((0, 0), (1, 20)), segments, 0, high_watermark, high_watermark, Limits(), Limits(),
        copies=True, steady_ms=0, wall_ms=0,
    )  # fmt: skip
    assert isinstance(next(steps), ReadFacts)
    assert isinstance(steps.send(Facts(16, (), 0)), LookAtLog)
    assert steps.send(view) == RaiseLogStart(KEY, raised)
