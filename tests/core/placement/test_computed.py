"""Computed assignment, number by number as document 000 has them (F1, F2, F3, F4, F5)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_clusters import brokers, difference, led_difference

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.computed import computed, rack_sequence
from anabranch.core.placement.placer import Ask, Placement, UsableBroker

FIVE = brokers("0 1 2 3 4")
TABLE = [
    (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
    (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    (0, 3, 4), (1, 4, 0), (2, 0, 1), (3, 1, 2), (4, 2, 3),
    (0, 1, 2),
]  # fmt: skip
"""The document's table, index 0 to 15."""
GAPS = [
    ("0 1 2 4 5000", 4, 1, 8, [(4,), (5000,), (0,), (1,)]),
    ("0 1 2 3 4", 4, 2, 3, [(3, 4), (4, 0), (0, 2), (1, 3)]),
    ("0 1 2 3 4", 21, 3, 0, [*TABLE, (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3)]),
    ("0 1 2 3 4", 4, 3, 12, [(2, 0, 1), (3, 1, 2), (4, 2, 3), (0, 1, 2)]),
    ("0 1 2 3 4", 4, 4, 10, [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 0), (3, 4, 0, 1)]),
    (
        "0 1 3 4 5002", 4, 5, 14,
        [(5002, 0, 1, 3, 4), (0, 1, 3, 4, 5002), (1, 3, 4, 5002, 0), (3, 4, 5002, 0, 1)],
    ),
]  # fmt: skip
"""From Fluvio's tests: brokers, partitions, replication factor, start, lists."""
SEQUENCES = [
    ({"r1": [0, 1, 2], "r2": [3, 4], "r3": [5]}, [0, 4, 5, 1, 3, 2]),
    (
        {"r1": [0, 1, 2, 3], "r2": [4, 5], "r3": [6, 7], "r4": [8], "r5": [9]},
        [0, 5, 6, 8, 9, 1, 4, 7, 2, 3],
    ),
    (
        {"r1": [0, 1, 2], "r2": [3, 4, 5], "r3": [6, 7], "r4": [8, 9]},
        [0, 4, 6, 8, 1, 5, 9, 2, 3, 7],
    ),
    (
        {"r1": [0, 1, 2], "r2": [3, 4, 5], "r3": [6, 7, 8], "r4": [9, 10, 11]},
        [0, 4, 8, 9, 1, 5, 6, 10, 2, 3, 7, 11],
    ),
    ({"a": [0, 1], "b": [2, 3], "c": [4, 5]}, [0, 3, 4, 1, 2, 5]),
    ({"a": [0, 1], "b": [2, 3]}, [0, 3, 1, 2]),
    ({"z": [0, 1], "a": [2, 3]}, [2, 1, 3, 0]),
]
BALANCED = brokers("a: 0 1 2", "b: 3 4 5", "c: 6 7 8", "d: 9 10 11")
UNBALANCED = brokers("a: 0", "b: 1 2", "c: 3 4 5")
EXAMPLE_1 = [
    (0, 4, 8, 9), (4, 8, 9, 1), (8, 9, 1, 5), (9, 1, 5, 6), (1, 5, 6, 10), (5, 6, 10, 2),
    (6, 10, 2, 3), (10, 2, 3, 7), (2, 3, 7, 11), (3, 7, 11, 0), (7, 11, 0, 4), (11, 0, 4, 8),
]  # fmt: skip
EXAMPLE_2 = [(3, 2, 0), (2, 0, 4), (0, 4, 1), (4, 1, 5), (1, 5, 3), (5, 3, 2)]
NINE = [
    (0, 4, 8), (4, 8, 1), (8, 1, 5), (1, 5, 6), (5, 6, 2), (6, 2, 3), (2, 3, 7), (3, 7, 0),
    (7, 0, 4),
]  # fmt: skip


def place(cluster: list[UsableBroker], count: int, factor: int, **more: object) -> Placement:
    return computed(cluster, Ask(count, factor, **more), Random(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(("ids", "count", "factor", "start", "rows"), GAPS)
def test_round_robin_with_gaps(
    ids: str, count: int, factor: int, start: int, rows: list[tuple[int, ...]]
) -> None:
    assert place(brokers(ids), count, factor, cursor=start).rows == rows


def test_the_documents_table() -> None:
    assert place(FIVE, 16, 3).rows == TABLE


def test_the_next_topic_starts_where_the_last_one_ended() -> None:
    first = place(FIVE, 9, 3)
    second = place(FIVE, 2, 3, cursor=first.cursor)
    assert first.rows[-1] == TABLE[8]
    assert second.rows == [(4, 1, 2), (0, 3, 4)]
    assert second.cursor == 11


@pytest.mark.parametrize(("racks", "sequence"), SEQUENCES)
def test_the_sequence_read_in_diagonals(racks: dict[str, list[int]], sequence: list[int]) -> None:
    assert rack_sequence(racks) == sequence


def _per_rack(rows: list[tuple[int, ...]], cluster: list[UsableBroker]) -> dict[str, list[int]]:
    rack = {broker.broker_id: broker.rack for broker in cluster}
    leaders = [rack[row[0]] for row in rows]
    followers = [rack[each] for row in rows for each in row[1:]]
    labels = sorted({str(each) for each in rack.values()})
    return {label: [leaders.count(label), followers.count(label)] for label in labels}


def test_example_1_balanced_racks() -> None:
    found = place(BALANCED, 12, 4)
    assert found.rows == EXAMPLE_1
    assert _per_rack(found.rows, BALANCED) == {label: [3, 9] for label in "abcd"}
    assert found.remarks == ()


COUNTED = [
    ({"c": (1, 0), "b": (0, 1), "a": (0, 1)}),
    ({"c": (1, 1), "b": (1, 1), "a": (0, 2)}),
    ({"c": (1, 2), "b": (1, 2), "a": (1, 2)}),
    ({"c": (2, 3), "b": (1, 3), "a": (1, 2)}),
    ({"c": (2, 5), "b": (2, 3), "a": (1, 2)}),
    ({"c": (3, 6), "b": (2, 4), "a": (1, 2)}),
]
"""The document's second table: leaders and followers of each rack after each partition."""


def test_example_2_unbalanced_racks() -> None:
    found = place(UNBALANCED, 6, 3)
    assert found.rows == EXAMPLE_2
    for partition, counted in enumerate(COUNTED):
        so_far = _per_rack(found.rows[: partition + 1], UNBALANCED)
        assert {label: tuple(counts) for label, counts in so_far.items()} == counted
    assert difference(found.rows, range(6)) == 0


def test_it_says_which_partitions_have_two_replicas_in_one_rack() -> None:
    (remark,) = place(UNBALANCED, 6, 3).remarks
    assert remark == (
        "Partitions 3, 4, 5 have two replicas in one rack although racks would suffice: computed "
        "assignment balances brokers, and the racks differ in size (a: 1, b: 2, c: 3)."
    )


def test_three_racks_of_three() -> None:
    cluster = brokers("r1: 0 1 2", "r2: 3 4 5", "r3: 6 7 8")
    assert place(cluster, 9, 3).rows == NINE


def test_it_fails_unless_every_broker_has_a_rack() -> None:
    cluster = brokers("a: 0 1", "2 4")
    with pytest.raises(ClientFault) as fault:
        place(cluster, 1, 2)
    assert fault.value.code == ErrorCode.INVALID_REQUEST
    assert "these have none: 2, 4. Set broker.rack there" in fault.value.message
    assert place(cluster, 1, 2, ignore_racks=True).rows == [(0, 1)]


@given(st.integers(1, 9), st.integers(1, 9))
def test_in_one_period_every_broker_leads_as_often(size: int, factor: int) -> None:
    """N x G lists, of which each broker leads G and is in RF x G."""
    factor = min(factor, size)
    cluster = brokers(" ".join(map(str, range(size))))
    rows = place(cluster, size * (size - factor + 1), factor).rows
    assert all(len(set(row)) == factor for row in rows)
    assert led_difference(rows, range(size)) == 0
    assert difference(rows, range(size)) == 0


def test_a_topic_that_grows_goes_on_where_it_ended() -> None:
    grown = place(FIVE, 3, 3, existing=tuple(TABLE[:9]), cursor=200)
    assert grown.rows == TABLE[9:12]
    assert grown.cursor == 200, "another topic's place is not taken"
    foreign = place(FIVE, 1, 3, existing=((3, 2, 1),), cursor=9)
    assert (foreign.rows, foreign.cursor) == ([(4, 1, 2)], 10)
