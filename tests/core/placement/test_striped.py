"""Striped placement gives what Kafka's own placer gives for the same draws (F, R10)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from java_random import MockRandom
from small_clusters import brokers, clusters, difference, led_difference

from anabranch.core.placement.placer import Ask, UsableBroker
from anabranch.core.placement.striped import Stripes, striped

KAFKAS = [
    (
        brokers("3 1f 0 4 2"),
        4,
        [(3, 4, 0, 2), (4, 0, 2, 3), (0, 2, 3, 4), (2, 3, 4, 0), (0, 4, 3, 2)],
    ),
    (brokers("3 1f 2"), 3, [(3, 2, 1), (2, 3, 1), (3, 2, 1), (2, 3, 1)]),
    (
        brokers("1: 11 10", "3: 30 31", "2: 21 20f"),
        4,
        [(11, 21, 31, 10), (21, 30, 10, 20), (31, 11, 21, 30)],
    ),
    (
        brokers("1: 11 10", "3: 30f 31f", "2: 20f 21f", "4: 41 40f"),
        4,
        [(41, 11, 21, 30), (10, 20, 31, 41), (41, 21, 30, 11)],
    ),
    (brokers("0 3 2 1"), 3, [(2, 3, 0), (3, 0, 1), (0, 1, 2), (1, 2, 3), (1, 0, 2)]),
    (brokers("0 1f"), 1, [(0,), (0,), (0,)]),
]
"""From Kafka's StripedReplicaPlacerTest: brokers, replication factor, lists in turn."""


@pytest.mark.parametrize(("cluster", "factor", "rows"), KAFKAS)
def test_the_lists_of_kafkas_tests(
    cluster: list[UsableBroker], factor: int, rows: list[tuple[int, ...]]
) -> None:
    assert striped(cluster, Ask(len(rows), factor), MockRandom()).rows == rows


def test_the_even_distribution_of_kafkas_tests() -> None:
    rows = striped(brokers("0 1 2 3"), Ask(200, 2), MockRandom()).rows
    assert {f"{first}{second}": n for (first, second), n in Counter(rows).items()} == {
        "01": 14, "02": 22, "03": 14, "10": 17, "12": 17, "13": 16,
        "20": 13, "21": 17, "23": 20, "30": 20, "31": 19, "32": 11,
    }  # fmt: skip


@given(clusters(), st.integers(1, 5), st.integers(0, 1000))
def test_valid_and_led_by_the_unfenced(cluster: list[UsableBroker], factor: int, seed: int) -> None:
    factor = min(factor, len(cluster))
    rows = striped(cluster, Ask(40, factor), Random(seed)).rows
    fenced = {broker.broker_id for broker in cluster if broker.fenced}
    assert len(rows) == 40
    assert all(len(set(row)) == factor and row[0] not in fenced for row in rows)
    assert rows == striped(cluster, Ask(40, factor), Random(seed)).rows


@given(clusters(), st.integers(1, 4), st.integers(0, 1000))
def test_the_short_way_gives_what_the_long_way_gives(
    cluster: list[UsableBroker], factor: int, seed: int
) -> None:
    factor = min(factor, len(cluster))
    rows = striped(cluster, Ask(100, factor), Random(seed)).rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stripes, "_asks_once", lambda *_: False)
        assert striped(cluster, Ask(100, factor), Random(seed)).rows == rows


def test_a_topic_that_grows_does_not_repeat_what_it_has() -> None:
    """KAFKA-14437: six partitions one by one lie as evenly as partitions made together."""
    cluster = brokers("a: 0 1", "b: 2 3", "c: 4 5")
    for seed in range(30):
        rng, rows = Random(seed), []
        for _ in range(6):
            rows += striped(cluster, Ask(1, 3, existing=tuple(rows)), rng).rows
        assert difference(rows, range(6)) <= 2
        assert led_difference(rows, range(6)) <= 1
