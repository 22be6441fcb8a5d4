"""What an obstacle of a plan says it would take is true: with it, the next plan makes the move."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.placement.test_move_plans import layout, sites

from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.move_plans import change_factor, drain, fill, mend_racks
from anabranch.core.types import TopicPartition

RACKS = st.sampled_from(["a", "b", "c"])
SITES = st.lists(st.tuples(RACKS, st.booleans(), st.booleans()), min_size=1, max_size=6)
FIRST_NEW = 100


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    cluster = [BrokerSite(number, *each) for number, each in enumerate(draw(SITES))]
    ids = st.sampled_from([each.broker_id for each in cluster])
    row = st.lists(ids, min_size=1, max_size=4, unique=True).map(tuple)
    return layout(cluster, *draw(st.lists(row, min_size=1, max_size=5)))


def with_brokers(made: Layout, *racks: str) -> Layout:
    """The same cluster with new open brokers in these racks, and nothing moved."""
    new = [BrokerSite(FIRST_NEW + number, rack) for number, rack in enumerate(racks)]
    return Layout([*made.sites.values(), *new], made.before)


@settings(max_examples=200, deadline=None)
@given(layouts(), st.sets(st.integers(0, 5), min_size=1, max_size=2))
def test_a_drain_with_one_more_broker_a_replica_has_no_obstacle(
    made: Layout, leaving: set[int]
) -> None:
    leaving &= set(made.sites)
    held = set(made.places_of(leaving))
    found = drain(made, leaving).obstacles
    of_partition = Counter(each.what.split(" on broker")[0] for each in found)
    more = max(of_partition.values(), default=0)
    again = drain(with_brokers(made, *["new"] * more), leaving)
    assert again.obstacles == ()
    assert {move.place for move in again.moves} == held


@settings(max_examples=200, deadline=None)
@given(layouts(), st.integers(1, 6))
def test_a_factor_is_reached_with_as_many_open_brokers(made: Layout, factor: int) -> None:
    found = change_factor(made, "t", factor)
    if found.obstacles:
        assert all(f"{factor} active brokers" in each.needs for each in found.obstacles)
    more = max(0, factor - len(made.open_sites()))
    again = change_factor(with_brokers(made, *["new"] * more), "t", factor)
    assert again.obstacles == ()
    reached = {move.place: move.after for move in again.moves}
    assert all(len(reached.get(place, row)) == factor for place, row in made.before.items())


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_racks_are_mended_by_a_broker_in_a_rack_that_is_free(made: Layout) -> None:
    found = mend_racks(made).obstacles
    if not found:
        return
    again = mend_racks(with_brokers(made, "new"))
    moved = {str(move.place): move.after for move in again.moves}
    for each in found:
        place = each.what.split(" of ")[1].split(" in ")[0]
        assert FIRST_NEW in moved[place]


def test_plans_keep_to_placement_constraints_and_say_what_they_would_take() -> None:
    """East has two on purpose: draining one of them stays in the east, or is an obstacle."""
    cluster = sites("e: 1 2 3", "w: 4 5")
    place = TopicPartition("t", 0)
    rules = {"t": {"e": 2, "w": 1}}
    (move,) = drain(Layout(cluster, {place: (1, 2, 4)}, rules), [2]).moves
    assert move.after == (1, 3, 4)
    assert mend_racks(Layout(cluster, {place: (1, 2, 4)}, rules)).moves == ()
    (obstacle,) = drain(Layout(cluster, {place: (1, 2, 4)}, rules), [2, 3]).obstacles
    assert obstacle.needs == (
        "one more active broker in rack e that is not cordoned, or other constraints"
    )
    more = [*cluster, BrokerSite(9, "e")]
    (move,) = drain(Layout(more, {place: (1, 2, 4)}, rules), [2, 3]).moves
    assert move.after == (1, 9, 4)
    (unmet,) = drain(Layout(cluster, {place: (4, 5)}, {"t": {"w": 1}}), [5]).obstacles
    assert unmet.needs == "`anabranch plan observers --topic t` before that"
    (factor,) = change_factor(Layout(cluster, {place: (1, 2, 4)}, rules), "t", 4).obstacles
    assert factor.needs == "other constraints, then `anabranch plan observers --topic t`"
    full = Layout(cluster, {TopicPartition("t", each): (1, 2, 4) for each in range(6)}, rules)
    filled = fill(full, [3]).moves
    assert filled and all({3, 4} < {*move.after} for move in filled)
