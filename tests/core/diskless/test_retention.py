"""Which diskless partitions a broker looks over, and by which limits."""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import START_MS, InMemoryNode
from tests.core.diskless.diskless_node import EPOCH, Cluster

from anabranch.core.diskless.retention import Limits, to_look_over
from anabranch.core.diskless.rows import Batch, Commit, LogKey
from anabranch.stores.coordinator import sql_tables

DISKLESS = {"diskless.enable": "true"}
WEEK_MS = 7 * 86_400_000


def looked_over(node):
    broker = node.broker
    return list(to_look_over(broker.image, broker.broker_id, broker.config, START_MS))


def test_what_this_broker_leads_is_looked_over_by_the_topic_s_limits():
    node = InMemoryNode(brokers=(1, 2))
    usual = node.topic("usual", 2, configs=DISKLESS)
    node.change("usual", 1, leader=2, replicas=(2,), isr=(2,))
    small = node.topic("small", configs={**DISKLESS, "retention.bytes": "9", "retention.ms": "-1"})
    kept = node.topic("kept", configs={**DISKLESS, "retention.ms": "-1"})
    node.topic("classic")
    assert sorted(looked_over(node)) == sorted([
        Limits(LogKey(usual, 0), START_MS - WEEK_MS, -1),
        Limits(LogKey(small, 0), -1, 9),
        Limits(LogKey(kept, 0), -1, -1),
    ])  # fmt: skip


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_nothing_is_deleted_where_the_brokers_default_says_not_to_delete(policy):
    """A topic that has none of its own follows the default, also one that is set after it."""
    node = InMemoryNode(config={"log.cleanup.policy": policy})
    node.topic("t", configs=DISKLESS)
    [limits] = looked_over(node)
    assert (limits.older_than_ms >= 0) == ("delete" in policy)


@pytest.mark.parametrize("retention_ms", ["-1", "604800000"])
def test_what_was_deleted_by_hand_leaves_no_rows_and_no_objects(monkeypatch, retention_ms):
    """One call drops few rows; retention drops the others, also where it has no limit itself."""
    monkeypatch.setattr(sql_tables, "MOST_RUNS_DROPPED", 2)
    cluster = Cluster()
    node = cluster.node()
    topic = cluster.topic(configs={"retention.ms": retention_ms})
    key = LogKey(topic, 0)
    for _ in range(5):
        [prepared] = cluster.coordinator.prepare(1, EPOCH, 1, 60_000)
        commit = Commit(*prepared[:2], 100, 1, EPOCH, (Batch(key, 0, 100, 1, START_MS),))
        cluster.coordinator.commit(commit)
    cluster.coordinator.delete_before([(key, 5)])
    assert len(cluster.coordinator.to_delete(0, 9)) == 2
    for limits in looked_over(node):
        bounds = limits._asdict()
        cluster.coordinator.expire(bounds.pop("key"), **bounds, most_runs=100)
    assert len(cluster.coordinator.to_delete(0, 9)) == 5
