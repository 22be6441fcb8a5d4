"""Plans are made of what a cluster tells, also of replicas that no broker has."""

from __future__ import annotations

from functools import partial

import pytest

from anabranch.client.plans import View, plan
from anabranch.core.placement.layout import BrokerSite
from anabranch.core.placement.move_plans import Plan, change_factor
from anabranch.core.types import TopicPartition

PLACE = TopicPartition("t", 0)


def of_factor(factor: int) -> Plan:
    """A partition that has replicas on 1 and 2, and waits for a third."""
    sites = tuple(map(BrokerSite, (1, 2), (None, None)))
    view = View("", sites, {PLACE: (1, 2)}, {}, {PLACE: 1}, ())
    return plan(view, partial(change_factor, topic="t", factor=factor))


def test_a_missing_replica_that_a_factor_leaves_out_is_told_with_the_way_to_give_it_up():
    made = of_factor(2)
    assert made.moves == ()
    (obstacle,) = made.obstacles
    assert obstacle.what == "replication factor 2 of t-0"
    assert obstacle.why == "missing: 1 replica, for the next broker that joins"
    assert obstacle.needs == (
        "`anabranch partitions reassign --execute` with a file that gives it the replicas 1, 2: "
        "no replica moves, and the missing ones are given up"
    )


@pytest.mark.parametrize(("factor", "obstacles"), [(1, 0), (3, 1)])
def test_another_factor_gives_it_up_or_wants_it(factor, obstacles):
    made = of_factor(factor)
    assert len(made.moves) == 1 - obstacles
    assert not any("missing" in each.why for each in made.obstacles)
    assert len(made.obstacles) == obstacles
