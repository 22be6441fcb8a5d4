"""Alerts of jobs that stopped, from the pages of a real broker: they fire, and end when a job runs."""

from __future__ import annotations

import sqlite3
import urllib.request
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient
from tests.clients.members import until
from tests.pipelines.compaction_kit import run_here
from tests.pipelines.test_compaction import fill, make, write
from tests.pipelines.tiering_kit import SECONDS, store_folder
from tests.server.node_kit import free_port
from tests.server.promql import fires, parsed, series_of
from tests.server.test_alerts import RULES

from anabranch.pipelines import compaction, tiering
from anabranch.pipelines.compaction import compact
from anabranch.pipelines.tiering import Where, tier
from anabranch.server.diskless import tiering_lags
from anabranch.testing import LocalCluster

TIERING, COMPACTION = "DisklessTieringStopped", "DisklessCompactionStopped"
AGO_SECONDS = 60
"""Before the limit of a rule, or after it."""


class Watched:
    """A broker, and a Prometheus that scrapes it."""

    def __init__(self, cluster, port, folder):
        cluster.own_folder = folder
        self.cluster, self.port = cluster, port
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self.where = Where(cluster.bootstrap_servers, f"file://{store_folder(cluster)}")

    def pages(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            return {"a": page.read().decode()}

    def fire(self):
        pages = self.pages()
        return {each for each in (TIERING, COMPACTION) if fires(RULES[each]["expr"], pages)}

    def lag(self, what, topic):
        """A figure of a topic; None without one."""
        series = series_of(self.pages())[f"anabranch_diskless_{what}"]
        found = [value for labels, value in series.items() if ("topic", topic) in labels]
        return found[0] if found else None

    def age(self, seconds):
        """All that the coordinator knows becomes older."""
        (path,) = self.cluster.own_folder.rglob("diskless.db")
        with closing(sqlite3.connect(path, timeout=SECONDS)) as on, on:
            on.execute("UPDATE remote_segments SET event_ms = event_ms - ?", (seconds * 1000,))
            on.execute("UPDATE wal_objects SET committed_ms = committed_ms - ?", (seconds * 1000,))

    def fired(self, *alerts):
        until(lambda: self.fire() == set(alerts), str(alerts), SECONDS)


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """What is behind is measured all the time, and jobs run without Spark."""
    monkeypatch.setattr(tiering_lags, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(tiering_lags, "ROUND_SECONDS", 0.1)
    monkeypatch.setattr(
        tiering, "waves", lambda _, items, work: [[(each, work(each))] for each in items]
    )
    monkeypatch.setattr(compaction, "run_groups", run_here)
    port = free_port()
    page = {"http.listener": f"127.0.0.1:{port}"}
    with LocalCluster(brokers=1, folder=tmp_path, config=page) as cluster:
        yield Watched(cluster, port, tmp_path)


def test_alerts_of_both_jobs_fire_while_none_runs_and_end_when_one_did(watched):
    cluster, where = watched.cluster, watched.where
    limits = {int(parsed(RULES[each]["expr"])[0]["limit"]) for each in (TIERING, COMPACTION)}
    (limit,) = limits
    make(watched.admin, "orders")
    make(watched.admin, "clicks", cleanup_policy="delete")
    write(cluster, "clicks", 0, 50)
    fill(cluster, where, "orders", waves=2, count=50)
    until(lambda: watched.lag("compaction_lag_bytes", "orders"), "what is dirty", SECONDS)
    assert watched.lag("compaction_lag_seconds", "orders") is None, "nothing was ever compacted"
    assert compact(None, where).partitions == 1

    write(cluster, "orders", 100, 50)
    assert tier(None, where).faults == {}
    write(cluster, "clicks", 50, 50)
    until(lambda: watched.lag("tiering_lag_bytes", "clicks"), "what is not tiered", SECONDS)
    until(lambda: watched.lag("compaction_lag_seconds", "orders"), "a pass that is due", SECONDS)
    watched.age(limit - AGO_SECONDS)
    waits = limit - AGO_SECONDS
    for what, topic in (("tiering", "clicks"), ("compaction", "orders")):
        metric = f"{what}_lag_seconds"
        until(lambda of=(metric, topic): (watched.lag(*of) or 0) >= waits, metric, SECONDS)
    assert watched.fire() == set()
    watched.age(AGO_SECONDS)
    watched.fired(TIERING, COMPACTION)

    assert tier(None, where).segments == 1
    watched.fired(COMPACTION)
    assert compact(None, where).partitions == 1
    watched.fired()
