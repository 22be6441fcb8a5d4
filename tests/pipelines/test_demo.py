"""The demo's step with Spark, on a small part of the flights."""

from __future__ import annotations

from anabranch.cli.demo.acts import create_topic, send_in_pieces
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
