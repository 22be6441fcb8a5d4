"""How far a broker is behind the coordinator, in records."""

from __future__ import annotations

import pytest
from tests.core.diskless.diskless_node import Cluster, batch

from anabranch.core.diskless import lags
from anabranch.core.diskless.rows import LogKey


@pytest.fixture
def cluster():
    made = Cluster()
    for _ in range(2):
        made.node()
    made.topic()
    return made


def write(cluster, node, values, name="t"):
    partition = node.diskless.get(name, 0)
    for value in values:
        partition.append(batch(value), required_acks=-1, now_ms=node.now_ms)
        cluster.settle()


def measured(cluster, node, name="t"):
    partition = node.diskless.get(name, 0)
    states = cluster.coordinator.states([partition.key])
    node.diskless.lags.told([partition.key], states)
    return [tuple(each) for each in node.diskless.lags.all()]


def test_a_broker_is_behind_by_what_it_has_not_heard_of_and_by_what_it_has_not_cached(cluster):
    first, second = cluster.nodes
    write(cluster, second, [b"a"])
    write(cluster, first, [b"b", b"c"])
    assert measured(cluster, first) == [("t", 0, 0, 0)]
    assert measured(cluster, second) == [("t", 0, 0, 2)], "it has heard, and cached its own"
    second.break_watch()
    write(cluster, first, [b"d", b"e", b"f"])
    assert measured(cluster, second) == [("t", 0, 3, 5)]


def test_nothing_cached_is_a_lag_of_all_that_is_kept(cluster):
    first, second = cluster.nodes
    write(cluster, second, [b"a"])
    second.diskless.blocks.most_bytes = 0
    second.diskless.blocks.trim()
    write(cluster, first, [b"b"] * 9)
    cluster.coordinator.delete_before([(second.diskless.get("t", 0).key, 4)])
    assert measured(cluster, second) == [("t", 0, 0, 6)]


def test_above_a_number_of_partitions_some_of_those_behind_have_a_series(cluster, monkeypatch):
    first, second = cluster.nodes
    for name in ("a", "b", "c"):
        cluster.topic(name)
        write(cluster, first, [b"1"], name)
        if name != "b":
            write(cluster, second, [b"2"], name)
        measured(cluster, first, name)
    for most, told in ((3, "abc"), (2, "ac"), (1, "a"), (0, "")):
        monkeypatch.setattr(lags, "MOST_SERIES", most)
        assert "".join(each.topic for each in first.diskless.lags.series()) == told
        assert [each.topic for each in first.diskless.lags.all()] == ["a", "b", "c"]


def test_what_is_gone_has_no_lag(cluster):
    (first, _), key = cluster.nodes, None
    write(cluster, first, [b"a"])
    measured(cluster, first)
    key = first.diskless.get("t", 0).key
    first.diskless.by_key.pop(LogKey(*key))
    first.diskless.lags.forget_gone()
    assert first.diskless.lags.all() == []
