"""`explain` says why here, why not there, why nothing moves; what it would take is true (B2)."""

from __future__ import annotations

from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.placement.test_move_plans import layout, sites

from anabranch.core.placement.explanation import Change, Kind, explain, what_it_takes
from anabranch.core.placement.layout import BrokerSite, Layout, Row
from anabranch.core.placement.move_plans import drain
from anabranch.core.types import TopicPartition

T0 = TopicPartition("t", 0)


def test_why_here() -> None:
    here = explain(layout(sites("a: 1 2", "b: 3c", "4f"), (1, 2, 3, 4, 9)), T0).here
    assert [each.sentence for each in here] == [
        "the preferred leader, rack a has another, on broker 2, the broker carries 1",
        "rack a has another, on broker 1, the broker carries 1",
        "the only one in rack b, the broker is cordoned, and existing replicas stay, the broker "
        "carries 1",
        "the broker has no rack, the broker is down, the broker carries 1",
        "the broker is not registered any more",
    ]


def test_why_not_there_and_what_it_would_take() -> None:
    cluster = sites("a: 1 2", "b: 3 4", "c: 5f 6c")
    found = explain(layout(cluster, (1,), (3, 4), (4, 3), (3, 1)), T0).not_there
    assert [(each.broker_id, each.sentence) for each in found] == [
        (2, "rack a has one on broker 1, and other racks have fewer"),
        (3, "where it carries 3, broker 4 carries 2"),
        (4, "it would get the next replica"),
        (5, "it is down"),
        (6, "it is cordoned"),
    ]
    assert [[change.sentence for change in each.changes] for each in found] == [
        ["the replica on broker 1 is removed"],
        ["broker 3 carries at most 2 replicas"],
        [],
        ["broker 5 is started"],
        ["broker 6 is not cordoned any more"],
    ]


def test_why_nothing_moves_and_what_would() -> None:
    spread = layout(sites("a: 1", "b: 2", "c: 3"), (1, 2))
    assert explain(spread, T0).moves == (
        "no move is needed: its replicas are in different racks, and its brokers are active",
    )
    close = layout(sites("a: 1 2", "b: 3"), (1, 2))
    (said,) = explain(close, T0).moves
    assert said.startswith("`anabranch plan racks` would move it from 1, 2 to 1, 3: rack a had 2")
    closed = layout(sites("a: 1 2", "b: 3c"), (1, 3))
    assert explain(closed, T0).moves == (
        "broker 3 is cordoned: replicas do not move automatically; `anabranch plan drain "
        "--broker 3` would move them",
    )


def test_replicas_are_called_apart_only_where_they_are() -> None:
    """Every way to give three brokers a rack of two, or none, and every partition on them."""
    for racks in product((None, "a", "b"), repeat=3):
        brokers = [BrokerSite(number, rack) for number, rack in enumerate(racks, 1)]
        for row in (row for size in (1, 2, 3) for row in permutations((1, 2, 3), size)):
            said = explain(layout(brokers, row), T0).moves
            held = [racks[broker_id - 1] for broker_id in row]
            apart = None not in held and len(set(held)) == len(held)
            assert any("in different racks" in each for each in said) <= apart, (racks, row, said)
            assert any("as many racks as possible" in each for each in said) <= any(racks)
            assert any("no broker has a rack" in each for each in said) == (not any(racks))


def test_who_is_not_registered_any_more_can_be_drained_as_it_says() -> None:
    lost = layout(sites("a: 1", "b: 2", "c: 3"), (1, 9))
    assert explain(lost, T0).moves == (
        "broker 9 is not registered any more: replicas do not move automatically; "
        "`anabranch plan drain --broker 9` would move them",
    )
    (move,) = drain(lost, [9]).moves
    assert move.after == (1, 2)


def test_constraints_are_named() -> None:
    cluster = sites("a: 1 2", "b: 3 4")
    held = Layout(cluster, {T0: (1, 3)}, {"t": {"a": 1, "b": 1}})
    found = explain(held, T0)
    assert found.moves == ("it satisfies the placement constraints of t: 1 in rack a, 1 in rack b",)
    assert [each.sentence for each in found.not_there] == [
        "the placement constraints of t require other racks, or no more replicas"
    ] * 2
    wanting = Layout(cluster, {T0: (1, 3)}, {"t": {"a": 2}})
    assert explain(wanting, T0).not_there[0].sentence == "it would get the next replica"
    assert "`anabranch plan observers --topic t` would move it" in explain(wanting, T0).moves[0]


def applied(plan: Layout, row: Row, changes: tuple[Change, ...]) -> BrokerSite | None:
    """Who gets the next replica with the changes made; who gave one up does not get it again."""
    state = dict(plan.sites)
    is_free = any(each.kind is Kind.UNCONSTRAIN for each in changes)
    made = Layout(state.values(), plan.before, {} if is_free else plan.rules)
    gone = [each.broker_id for each in changes if each.kind is Kind.GIVE_UP]
    for each in changes:
        if each.kind is Kind.START:
            made.sites[each.broker_id] = made.sites[each.broker_id]._replace(active=True)
        elif each.kind is Kind.UNCORDON:
            made.sites[each.broker_id] = made.sites[each.broker_id]._replace(cordoned=False)
        elif each.kind in (Kind.CARRY_AT_LEAST, Kind.CARRY_AT_MOST):
            made.replicas[each.broker_id] = each.replicas
    stays = tuple(each for each in row if each not in gone)
    return made.choose(stays, made.fitting(T0, stays, made.open_sites(gone)))


RACKS = st.sampled_from([None, "a", "b", "c"])
RULES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 3), min_size=1)
SITES = st.lists(st.tuples(RACKS, st.booleans(), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(SITES, st.data())
def test_with_what_it_would_take_that_broker_is_chosen(
    drawn: list[tuple[str | None, bool, bool]], data: st.DataObject
) -> None:
    cluster = [BrokerSite(number, *each) for number, each in enumerate(drawn)]
    ids = [each.broker_id for each in cluster]
    row = st.lists(st.sampled_from(ids), min_size=1, max_size=4, unique=True).map(tuple)
    rows = data.draw(st.lists(row, min_size=1, max_size=6))
    rules = data.draw(st.none() | RULES)
    diskless = {"t"} if rules is None and data.draw(st.booleans()) else set()
    if diskless:
        rules = dict.fromkeys((each.rack or "unknown" for each in cluster), 1)
    before = layout(cluster, *rows).before
    plan = Layout(cluster, before, {"t": rules} if rules else {}, diskless)
    for broker_id in set(ids) - set(rows[0]):
        changes = what_it_takes(plan, T0, broker_id)
        chosen = applied(plan, rows[0], changes)
        assert chosen is not None and chosen.broker_id == broker_id
        best = plan.choose(rows[0], plan.fitting(T0, rows[0], plan.open_sites()))
        assert (changes == ()) == (best is not None and best.broker_id == broker_id)
