"""Plans for diskless topics: one replica a rack, no records move, and that is said."""

from __future__ import annotations

from tests.core.placement.test_move_plans import sites

from anabranch.core.placement.explanation import explain
from anabranch.core.placement.layout import Layout
from anabranch.core.placement.move_plans import change_factor, drain, fill, mend_racks
from anabranch.core.types import TopicPartition

T0, C0 = TopicPartition("t", 0), TopicPartition("classic", 0)


def managed(cluster, *rows, classic=()):
    partitions = {TopicPartition("t", index): row for index, row in enumerate(rows)}
    partitions |= {TopicPartition("classic", index): row for index, row in enumerate(classic)}
    rule = dict.fromkeys((each.rack or "unknown" for each in cluster), 1)
    return Layout(cluster, partitions, {"t": rule}, {"t"})


def test_a_drain_stays_in_the_rack_and_copies_nothing():
    plan = drain(managed(sites("a: 1 2", "b: 3 4", "5 6"), (1, 3, 5), classic=[(1, 3)]), [1])
    after = {move.place: set(move.after) for move in plan.moves}
    assert after[T0] == {2, 3, 5}
    assert "no records move" in next(move.sentence for move in plan.moves if move.place == T0)
    assert "no records move" not in next(move.sentence for move in plan.moves if move.place == C0)
    assert plan.sentence.endswith("2 partitions to move, 1 replica to copy")
    (move,) = drain(managed(sites("a: 1 2", "5 6"), (1, 5)), [5]).moves
    assert set(move.after) == {1, 6}


def test_without_another_broker_in_the_rack_the_replica_stays_and_the_remedy_is_told():
    plan = drain(managed(sites("a: 1", "b: 3"), (1, 3)), [1])
    (obstacle,) = plan.obstacles
    assert plan.moves == ()
    assert "no other broker of rack a can get it" in obstacle.why
    assert "in rack a" in obstacle.needs


def test_its_factor_is_the_racks_affair_and_mending_them_the_controllers():
    (obstacle,) = change_factor(managed(sites("a: 1", "b: 3"), (1, 3)), "t", 3).obstacles
    assert "number of racks" in obstacle.why
    assert mend_racks(managed(sites("a: 1 2", "b: 3"), (1, 2))).moves == ()


def test_filling_takes_from_brokers_of_its_own_rack():
    rows = [(1, 3)] * 4
    plan = fill(managed(sites("a: 1 2", "b: 3"), *rows), [2])
    assert plan.moves
    assert all(set(move.after) == {2, 3} for move in plan.moves)


def test_explain_speaks_of_racks():
    found = explain(managed(sites("a: 1 2", "b: 3"), (1, 3)), T0)
    assert found.moves == (
        "t is diskless: the controller keeps one replica in each of its racks, a, b; a move "
        "copies no records",
    )
    (other,) = found.not_there
    assert other.sentence == "rack a has one already, and a diskless topic has one in each rack"
    assert [each.sentence for each in other.changes] == ["the replica on broker 1 is removed"]
