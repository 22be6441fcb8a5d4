"""The verdict on a run of tiering under kills: sound runs pass, and each planted fault is told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from chaos.mirror import Stuck

from anabranch.pipelines import tiering as pipeline
from anabranch.pipelines.tiering import Where, tier
from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.testing import LocalCluster
from chaos import tiering

READ = SimpleNamespace(wrong=[])


def waves(_spark, items, work):
    """Tasks run in this process, without Spark."""
    for each in items:
        yield [(each, json.loads(json.dumps(work(each))))]


def test_a_run_is_judged_by_records_and_by_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "waves", waves)
    with LocalCluster(brokers=1, racks=["a"], folder=tmp_path) as cluster:
        at = cluster.bootstrap_servers
        settings = {**tiering.SETTINGS, "diskless.tiering.age.ms": "0"}
        cluster.create_topic(
            tiering.TOPIC, partitions=tiering.PARTITIONS, replication_factor=-1, config=settings
        )
        with tiering.Sender(at) as sender, tiering.Reader(at) as reader:
            time.sleep(1.5)
        (found,) = tmp_path.rglob(COORDINATOR)
        coordinator = tiering.Coordinator(found.parent)
        assert coordinator.rows() and not coordinator.segments()
        done = tier(None, Where(at, f"file://{found.parent}/{OBJECTS}"))
        assert coordinator.segments() == done.segments == tiering.PARTITIONS
        assert not coordinator.rows()
        assert len(sender.places) == sender.sent
        tiering.judge(at, sender, reader)
        planted(at, sender)
        cluster_id = cluster.cluster_id
    store = f"file://{found.parent}/{OBJECTS}"
    assert asyncio.run(tiering.verified(coordinator, store, cluster_id)) == []
    log = next((found.parent / OBJECTS).rglob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    assert asyncio.run(tiering.verified(coordinator, store, cluster_id))


def planted(at, sender):
    """Faults that a run could have."""
    number, place = next(iter(sender.places.items()))
    for places, refused, words in (
        ({**sender.places, number: (place[0], place[1] + 1)}, 0, "1 are not at their offsets"),
        ({**sender.places, -7: (0, 1 << 40)}, 0, "1 are not at their offsets"),
        (sender.places, 3, "3 records were refused"),
    ):
        with pytest.raises(Stuck, match=words):
            tiering.judge(at, SimpleNamespace(places=places, refused=refused), READ)
    changed = SimpleNamespace(wrong=["tiered-0 at 5 was another record before"])
    with pytest.raises(Stuck, match="another record"):
        tiering.judge(at, sender, changed)


def test_a_claim_lapses_for_the_next_job(tmp_path):
    with closing(sqlite3.connect(tmp_path / COORDINATOR)) as on, on:
        on.execute("CREATE TABLE tiering_claims (claim_id, expires_ms)")
        on.execute("INSERT INTO tiering_claims VALUES (1, 99)")
    coordinator = tiering.Coordinator(tmp_path)
    coordinator.lapse()
    assert coordinator.count("SELECT expires_ms FROM tiering_claims") == 0


def test_no_transaction_begins_while_the_coordinator_is_away(tmp_path, monkeypatch):
    with closing(sqlite3.connect(tmp_path / COORDINATOR)) as on, on:
        on.execute("CREATE TABLE tiering_claims (claim_id, expires_ms)")
    coordinator, refused = tiering.Coordinator(tmp_path), []

    def during(_seconds):
        with closing(sqlite3.connect(tmp_path / COORDINATOR, timeout=0)) as on:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                on.execute("DELETE FROM tiering_claims")
            refused.append(on)

    monkeypatch.setattr(tiering.time, "sleep", during)
    coordinator.away()
    assert refused
    coordinator.lapse()
