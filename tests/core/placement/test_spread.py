"""Spread placement: rack-safe while racks allow, even, and it remembers (R10)."""

from __future__ import annotations

from collections import Counter
from itertools import chain, product
from math import ceil
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from small_clusters import brokers, clusters, difference, led_difference, most_in_a_rack

from anabranch.core.placement.placer import Ask, Loads, UsableBroker
from anabranch.core.placement.spread import spread

SIX = brokers("a: 1 2", "b: 3 4", "c: 5 6")


def loads(rows: list[tuple[int, ...]]) -> Loads:
    return Loads(Counter(chain.from_iterable(rows)), Counter(row[0] for row in rows))


@given(clusters(), st.integers(1, 5), st.integers(0, 1000))
def test_valid_and_rack_safe(cluster: list[UsableBroker], factor: int, seed: int) -> None:
    factor = min(factor, len(cluster))
    rows = spread(cluster, Ask(40, factor), Random(seed)).rows
    assert rows == spread(cluster, Ask(40, factor), Random(seed)).rows
    fenced = {broker.broker_id for broker in cluster if broker.fenced}
    sizes = Counter(broker.rack for broker in cluster)
    fair = 1
    while sum(min(size, fair) for size in sizes.values()) < factor:
        fair += 1
    assert fair >= ceil(factor / len(sizes))
    for row in rows:
        assert len(set(row)) == factor
        assert row[0] not in fenced
        assert most_in_a_rack(row, cluster) <= fair


def test_equal_racks_carry_equally() -> None:
    """Of every small cluster. Each partition's leader is chosen once, so that seldom a broker leads
    three partitions more than another; replicas are even always."""
    apart: Counter[int] = Counter()
    for racks, size in product(range(1, 5), repeat=2):
        cluster = [
            UsableBroker(rack * size + each, f"r{rack}", False)
            for rack in range(racks)
            for each in range(size)
        ]
        ids = [broker.broker_id for broker in cluster]
        for factor, count in product(range(1, racks + 1), range(1, 61)):
            rows = spread(cluster, Ask(count, factor), Random(count)).rows
            assert difference(rows, ids) <= 1
            apart[led_difference(rows, ids)] += 1
    assert apart.total() == 2400
    assert max(apart) <= 3
    assert apart[3] <= 2


def test_the_worked_example() -> None:
    three = spread(SIX, Ask(3, 2), Random(7)).rows
    assert difference(three, range(1, 7)) == 0
    assert led_difference(three, range(1, 7)) == 1
    six = three + spread(SIX, Ask(3, 2, existing=tuple(three)), Random(8)).rows
    assert led_difference(six, range(1, 7)) == 0


def test_topics_of_one_partition_are_even_over_the_cluster() -> None:
    rows: list[tuple[int, ...]] = []
    for topic in range(60):
        rows += spread(SIX, Ask(1, 3, loads=loads(rows)), Random(topic)).rows
    assert difference(rows, range(1, 7)) == 0
    assert led_difference(rows, range(1, 7)) <= 1


def test_a_new_broker_gets_what_evens_the_topic_out() -> None:
    old = spread(brokers("1 2"), Ask(6, 1), Random(1)).rows
    grown = spread(brokers("1 2 3"), Ask(3, 1, existing=tuple(old)), Random(1)).rows
    assert grown == [(3,), (3,), (3,)]


def test_fewer_racks_than_replicas_are_said_and_do_not_fail() -> None:
    found = spread(brokers("a: 1 2 3", "b: 4 5 6"), Ask(12, 3), Random(1))
    assert {most_in_a_rack(row, brokers("a: 1 2 3", "b: 4 5 6")) for row in found.rows} == {2}
    assert found.remarks == (
        "Up to 2 of the 3 replicas of a partition share a rack: the usable brokers stand in 2 "
        "racks.",
    )


def test_a_rack_whose_brokers_are_all_fenced_is_used_and_never_leads() -> None:
    found = spread(brokers("a: 1f 2f", "b: 3 4"), Ask(8, 2), Random(1))
    assert all(row[0] in (3, 4) and row[1] in (1, 2) for row in found.rows)
    assert found.remarks == (
        "Replicas in rack a are out of sync at first: all its brokers are fenced.",
    )
    assert all(row[0] == 3 for row in spread(brokers("a: 1f", "b: 3"), Ask(4, 1), Random(1)).rows)
