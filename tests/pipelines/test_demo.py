"""The demo's step with Spark, on a small part of the flights."""

from __future__ import annotations

import pytest

from anabranch.cli.demo import mirrored, tiered
from anabranch.cli.demo.acts import PARTITIONS, create_topic, read_all, send_in_pieces
from anabranch.cli.demo.flights import Tally, delays_from, flights
from anabranch.pipelines import flights as pipeline
from anabranch.testing import LocalCluster

RECORDS = 600


def test_spark_counts_what_was_sent_and_the_table_has_each_record_once(spark, tmp_path):
    loaded, expected = list(flights(RECORDS)), Tally(RECORDS)
    for record in loaded:
        expected.take(record.key, record.value)
    table = str(tmp_path / "table")
    with LocalCluster(brokers=3) as cluster:
        at = cluster.bootstrap_servers
        create_topic(at, "flights")
        query = pipeline.keep(spark, at, "flights", table)
        send_in_pieces(at, "flights", loaded, advance=lambda _count: None)
        query.processAllAvailable()
        query.stop()
        assert delays_from(pipeline.delays_of(spark, at, "flights")) == expected.carriers
    kept = pipeline.kept(spark, table)
    assert (kept.rows, kept.distinct) == (RECORDS, RECORDS)
    assert delays_from(kept.delays) == expected.carriers


@pytest.mark.slow
def test_a_group_reads_on_in_the_second_cluster_where_it_was(spark):
    with LocalCluster(brokers=3) as first, LocalCluster() as second:
        create_topic(first.bootstrap_servers, "flights")
        loaded = list(flights(RECORDS))
        send_in_pieces(first.bootstrap_servers, "flights", loaded, advance=lambda _count: None)
        done = mirrored.mirror(spark, first.bootstrap_servers, second.bootstrap_servers, "flights")
        rest = mirrored.rest_of(first.bootstrap_servers, "flights", done.here)
        remote = mirrored.REMOTE.format("flights")
        assert mirrored.rest_of(second.bootstrap_servers, remote, done.there) == rest
        assert sum(map(len, rest.values())) == RECORDS - sum(done.here.values())
        tally = Tally(RECORDS)
        read_all(second.bootstrap_servers, remote, tally, advance=lambda _count: None)
        assert tally.holds


@pytest.mark.slow
def test_the_diskless_topic_is_tiered_and_its_rows_are_counted(spark, tmp_path):
    loaded = list(flights(RECORDS))
    with LocalCluster(brokers=3, racks=["a", "b", "c"], folder=tmp_path) as cluster:
        at, folder = cluster.bootstrap_servers, str(next(tmp_path.rglob("diskless.db")).parent)
        create_topic(at, "flights", is_diskless=True)
        send_in_pieces(at, "flights", loaded, advance=lambda _count: None)
        before = tiered.rows_of(folder, "flights")
        assert before.batches >= PARTITIONS and before.segments == 0
        done = tiered.tier_all(spark, at, folder)
        assert (done.segments, done.rows_freed) == (PARTITIONS, before.batches)
        assert tiered.rows_of(folder, "flights") == (0, PARTITIONS)
        tally = Tally(RECORDS)
        read_all(at, "flights", tally, advance=lambda _count: None)
        assert tally.holds
