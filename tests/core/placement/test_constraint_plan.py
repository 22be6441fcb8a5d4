"""R9: a topic that exists is brought to its constraints; observers are promoted without a copy."""

from __future__ import annotations

from anabranch.core.placement.constraint_plan import meet
from anabranch.core.placement.constraints import Constraints
from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.move_plans import Plan
from anabranch.core.types import TopicPartition

SITES = (BrokerSite(1, "east"), BrokerSite(2, "east"), BrokerSite(3, "west"), BrokerSite(4, "west"))
T0 = TopicPartition("t", 0)


def planned(
    row: tuple[int, ...],
    constraints: Constraints,
    observers: tuple[int, ...] = (),
    sites: tuple[BrokerSite, ...] = SITES,
) -> Plan:
    return meet(Layout(sites, {T0: row}), "t", constraints, {T0: observers})


def test_the_worked_example_promotes_the_observer() -> None:
    plan = planned((1, 2), Constraints({"east": 1, "west": 1}, {}), (4,))
    [move] = plan.moves
    assert (move.before, move.after) == ((1, 2), (1, 4))
    assert "broker 4 is promoted from observer" in move.sentence
    assert "the replica on broker 2 is removed: rack east should have 1" in move.sentence


def test_a_demoted_replica_is_said_to_be_able_to_observe() -> None:
    [move] = planned((3, 1, 2), Constraints({"east": 2}, {"west": 1})).moves
    assert move.after == (1, 2)
    assert "the replica on broker 3 is removed: rack west should have 0; it may observe then" in (
        move.sentence
    )


def test_what_fits_does_not_move() -> None:
    plan = planned((2, 1), Constraints({"east": 2}, {"west": 1}))
    assert (plan.moves, plan.obstacles) == ((), ())
    assert plan.sentence == "meet the placement constraints of t: nothing has to move"


def test_a_rack_with_too_few_is_an_obstacle_and_the_partition_does_not_move() -> None:
    sites = (*SITES[:3], BrokerSite(4, "west", cordoned=True))
    plan = planned((1, 2), Constraints({"west": 2}, {}), sites=sites)
    assert plan.moves == ()
    [obstacle] = plan.obstacles
    assert obstacle.what == "2 replicas of t-0 in rack west"
    assert obstacle.why == "it has 0, and 1 other broker of it can get one"
    opened = planned((1, 2), Constraints({"west": 2}, {}))
    assert opened.moves[0].after == (3, 4), "what it would take is true"


def test_observers_that_would_lack_brokers_are_an_obstacle_beside_the_moves() -> None:
    plan = planned((1, 3), Constraints({"east": 2}, {"west": 3}))
    assert plan.moves[0].after == (1, 2)
    [obstacle] = plan.obstacles
    assert obstacle.what == "3 observers of each partition of t in rack west"
    assert "2 brokers there can get one" in obstacle.why


def test_a_broker_that_is_down_goes_before_one_that_is_up() -> None:
    sites = (BrokerSite(1, "east", active=False), *SITES[1:])
    assert planned((1, 2), Constraints({"east": 1, "west": 1}, {}), sites=sites).moves[0].after == (
        2, 3
    )  # fmt: skip


def test_a_factor_that_grows_takes_the_observer_and_one_that_shrinks_keeps_the_leader() -> None:
    grown = planned((1, 2), Constraints({"east": 2, "west": 1}, {}), (4,)).moves[0]
    assert grown.after == (1, 2, 4)
    shrunk = planned((2, 1, 4), Constraints({"east": 1, "west": 1}, {"west": 1})).moves[0]
    assert shrunk.after == (2, 4)
