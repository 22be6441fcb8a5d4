"""Plans move what they must and no more, and say why and why not (B2, R16)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.move_plans import Plan, change_factor, drain, fill, mend_racks
from anabranch.core.types import TopicPartition


def sites(*racks: str) -> list[BrokerSite]:
    """`"a: 1 2c 3f"`: rack a with brokers 1, 2 (cordoned) and 3 (fenced)."""
    found = []
    for written in racks:
        rack, colon, words = written.rpartition(":")
        for word in words.split():
            number = int(word.rstrip("cf"))
            name = rack.strip() if colon else None
            found.append(BrokerSite(number, name, not word.endswith("f"), word.endswith("c")))
    return found


def layout(cluster: list[BrokerSite], *rows: tuple[int, ...], topic: str = "t") -> Layout:
    return Layout(cluster, {TopicPartition(topic, i): row for i, row in enumerate(rows)})


def after(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {move.place.partition: move.after for move in plan.moves}


ABC = sites("a: 1", "b: 2", "c: 3 4")


def test_the_worked_example() -> None:
    plan = drain(layout(ABC, (1, 2, 3), (3, 1, 2), (2, 3, 1), (1, 2)), [3])
    assert after(plan) == {0: (1, 2, 4), 1: (2, 1, 4), 2: (2, 4, 1)}
    assert plan.sentence == "drain broker 3: 3 partitions to move, 3 replicas to copy"
    assert plan.moves[0].sentence == (
        "broker 3 is drained; broker 4 gets the replica: rack c has none of it, and there it "
        "carries least"
    )


def test_a_drain_without_room_says_what_it_would_take_and_that_is_true() -> None:
    closed = sites("a: 1", "b: 2", "c: 3 4c")
    plan = drain(layout(closed, (1, 2, 3)), [3])
    assert plan.moves == ()
    assert plan.sentence == "drain broker 3: nothing can move"
    (obstacle,) = plan.obstacles
    assert obstacle.what == "the replica of t-0 on broker 3"
    assert obstacle.why == "broker 4 is cordoned; the others have a replica"
    assert obstacle.needs == (
        "one more active broker that is not cordoned, or a lower replication factor"
    )
    assert after(drain(layout(sites("a: 1", "b: 2", "c: 3 4"), (1, 2, 3)), [3])) == {0: (1, 2, 4)}


def test_a_new_broker_takes_its_share_from_whoever_has_most() -> None:
    rows = [(1, 2), (2, 1), (1, 3), (3, 1), (1, 2), (2, 3)]
    plan = fill(layout(sites("1 2 3 4"), *rows), [4])
    assert len(plan.moves) == 3
    counts = Counter(
        each for row in {**dict(enumerate(rows)), **after(plan)}.values() for each in row
    )
    assert max(counts.values()) - min(counts.values()) <= 1
    assert "the share is 3" in plan.moves[0].sentence


def test_new_brokers_in_several_racks_take_their_shares_each_from_its_own() -> None:
    made = layout(sites("a: 1 4", "b: 2 5"), *[(1, 2), (2, 1)] * 6)
    plan = fill(made, [4, 5])
    assert plan.obstacles == ()
    assert dict(made.replicas) == {1: 6, 2: 6, 4: 6, 5: 6}


def test_a_share_is_not_reached_at_the_price_of_a_rack() -> None:
    cluster = sites("a: 1 3", "b: 2")
    plan = fill(layout(cluster, (1, 2), (2, 1), (1, 2), (2, 1)), [3])
    assert all(set(move.before) - set(move.after) == {1} for move in plan.moves)
    assert all(2 in move.after for move in plan.moves)


def test_a_pair_in_a_rack_ends_where_a_rack_is_free() -> None:
    plan = mend_racks(layout(sites("a: 1 2", "b: 3", "c: 4"), (1, 2), (1, 3), (3, 1, 2)))
    assert after(plan) == {0: (1, 4), 2: (3, 4, 2)}
    assert mend_racks(layout(sites("a: 1 2", "b: 3"), (1, 2, 3))).sentence == (
        "mend rack violations: nothing has to move"
    )


def test_a_rack_that_could_help_and_may_not_is_said() -> None:
    plan = mend_racks(layout(sites("a: 1 2", "b: 3c", "c: 4f"), (1, 2)))
    assert plan.moves == ()
    (obstacle,) = plan.obstacles
    assert obstacle.what == "two replicas of t-0 in rack a"
    assert obstacle.why == "every broker of the racks without one is down or cordoned"
    assert plan.sentence == "mend rack violations: nothing can move"


def test_a_broker_that_is_not_registered_any_more_can_be_drained() -> None:
    plan = drain(layout(ABC, (1, 2, 9)), [9])
    assert (after(plan), plan.obstacles) == ({0: (1, 2, 3)}, ())
    led = drain(layout(ABC, (9, 1, 2)), [9])
    assert after(led) == {0: (1, 2, 3)}


def test_a_replica_that_is_down_is_given_up_before_one_that_is_not() -> None:
    plan = change_factor(layout(sites("a: 1f", "b: 2", "c: 3"), (1, 2, 3), (2, 1, 3)), "t", 2)
    assert after(plan) == {0: (2, 3), 1: (2, 3)}
    assert plan.moves[0].sentence == "the replica on broker 1 is removed: it is down"


def test_more_and_fewer_replicas() -> None:
    cluster = sites("a: 1 2", "b: 3", "c: 4")
    more = change_factor(layout(cluster, (1, 2), (1, 3)), "t", 3)
    assert [set(row) for row in after(more).values()] == [{1, 2, 4}, {1, 3, 4}]
    fewer = change_factor(layout(cluster, (1, 2, 3), (3, 1, 4)), "t", 2)
    assert after(fewer)[0] == (1, 3)
    assert after(fewer)[1][0] == 3
    assert "rack a has another" in fewer.moves[0].sentence
    short = change_factor(layout(cluster, (1, 2)), "t", 5)
    assert short.obstacles[0].why == "only 4 brokers can get replicas"


def test_a_goal_that_names_what_is_not_there_is_refused() -> None:
    made = layout(ABC, (1, 2))
    with pytest.raises(ClientFault, match=r"There is no topic 'no': ") as topic:
        change_factor(made, "no", 2)
    assert topic.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for goal in (drain, fill):
        with pytest.raises(ClientFault) as broker:
            goal(made, [8, 1, 9])
        assert broker.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert broker.value.message == "Not registered: brokers 8, 9; known: 1, 2, 3, 4."


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    count = draw(st.integers(2, 9))
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c")]))
    cluster = [
        BrokerSite(
            each,
            draw(st.sampled_from(racks)),
            draw(st.integers(0, 5)) > 0,
            draw(st.integers(0, 5)) == 0,
        )
        for each in range(count)
    ]
    size = draw(st.integers(1, min(3, count)))
    row = st.permutations(range(count)).map(lambda each: tuple(each[:size]))
    return layout(cluster, *draw(st.lists(row, min_size=1, max_size=30)))


def worst(layout: Layout, row: tuple[int, ...]) -> int:
    return max(layout.in_racks(row).values(), default=0)


@given(layouts(), st.data())
def test_what_holds_for_every_drain(found: Layout, data: st.DataObject) -> None:
    leaving = data.draw(st.sampled_from(sorted(found.sites)))
    held = found.replicas[leaving]
    plan = drain(found, [leaving])
    assert len(plan.moves) + len(plan.obstacles) == held, "every replica moves, or it is said why"
    for move in plan.moves:
        assert leaving not in move.after
        assert len(set(move.after)) == len(move.before)
        assert len(set(move.before) - set(move.after)) == 1, "nothing else moves"
        (new,) = set(move.after) - set(move.before)
        assert found.sites[new].is_open
    again = drain(Layout(found.sites.values(), found.rows), [leaving])
    assert again.moves == (), "a plan that is done leaves nothing to do"


@given(layouts())
def test_mending_racks_only_helps_and_is_done_at_once(found: Layout) -> None:
    plan = mend_racks(found)
    for move in plan.moves:
        assert len(set(move.after)) == len(move.before)
        assert len(found.in_racks(move.after)) > len(found.in_racks(move.before))
        assert move.after[0] == move.before[0], "the leader stays"
    assert mend_racks(Layout(found.sites.values(), found.rows)).moves == ()


@given(layouts(), st.data())
def test_filling_up_is_even_and_makes_no_rack_worse(found: Layout, data: st.DataObject) -> None:
    joining = data.draw(st.sets(st.sampled_from(sorted(found.sites)), min_size=1, max_size=3))
    plan = fill(found, joining)
    for move in plan.moves:
        (new,) = set(move.after) - set(move.before)
        assert new in joining
        assert worst(found, move.after) <= max(worst(found, move.before), 1)
    again = fill(Layout(found.sites.values(), found.rows), joining)
    if all(each.needs != "the same command once this plan is complete" for each in plan.obstacles):
        assert again.moves == ()
    assert {each.place for each in again.moves} <= {each.place for each in plan.moves}


@given(layouts(), st.integers(1, 6))
def test_a_factor_is_reached_or_it_is_said_why(found: Layout, factor: int) -> None:
    plan = change_factor(found, "t", factor)
    refused = {obstacle.what for obstacle in plan.obstacles}
    for place, row in found.rows.items():
        before = found.before[place]
        down = {each for each in before if not found.sites[each].active}
        if before[0] not in down:
            assert row[0] == before[0], "the leader stays"
        assert len(set(row)) == len(row)
        if not set(before) <= set(row):
            assert set(before) - set(row) <= down or not down & set(row), "who is down goes first"
        if len(row) != factor:
            assert f"{factor} replicas of {place}" in refused
