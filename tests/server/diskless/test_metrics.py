"""What the data path of diskless topics tells Prometheus."""

from __future__ import annotations

from tests.core.diskless.diskless_node import Cluster, batch

from anabranch.server.exported import DISKLESS, METRICS
from anabranch.server.metrics import samples_of_diskless


def samples(node):
    counts = node.diskless.statistics(node.broker.steady_ms)
    return {(name, *labels): value for name, labels, value in samples_of_diskless(counts)}


def test_what_was_written_and_read_is_counted():
    cluster = Cluster()
    node = cluster.node()
    cluster.topic()
    before = samples(node)
    assert "anabranch_diskless_last_put_age_seconds" not in {name for name, *_ in before}
    partition = node.diskless.get("t", 0)
    records = batch(b"a")
    partition.append(records, required_acks=-1, now_ms=node.now_ms)
    assert samples(node)[("anabranch_diskless_waiting_bytes",)] == len(records)
    node.settle()
    node.broker.steady_ms += 2_500
    partition.read(0, max_bytes=1000, upto=1, at_least_one=True)
    found = samples(node)
    assert found[("anabranch_diskless_put_seconds",)][0] == 1
    assert found[("anabranch_diskless_put_bytes_total",)] == sum(
        map(len, cluster.store.objects.values())
    )
    assert found[("anabranch_diskless_commit_seconds",)][0] == 1
    assert found[("anabranch_diskless_batches_total",)] == 1
    assert found[("anabranch_diskless_last_put_age_seconds",)] == 2.5
    assert found[("anabranch_diskless_last_commit_age_seconds",)] == 2.5
    assert found[("anabranch_diskless_waiting_bytes",)] == 0
    assert found[("anabranch_diskless_watching",)] == 1
    node.break_watch()
    assert samples(node)[("anabranch_diskless_watching",)] == 0
    assert found[("anabranch_diskless_cache_bytes",)] >= len(records)
    assert found[("anabranch_diskless_cache_hits_total",)] == 1
    assert {name for name, *_ in found} == {each.name for each in DISKLESS}
    assert set(DISKLESS) <= set(METRICS)


def test_stores_that_are_missing_are_shown_before_there_are_any_figures():
    node = Cluster().node()
    assert samples(node)[("anabranch_diskless_stores_missing",)] == 0
    node.diskless.is_on = False
    node.diskless.wait("another cluster's")
    assert samples(node) == {("anabranch_diskless_stores_missing",): 1}


def test_a_broker_without_diskless_topics_tells_nothing():
    node = Cluster().node()
    node.diskless.is_on = False
    assert samples(node) == {}
