"""The verdict on a run of compaction under kills: a sound run passes, planted faults are told."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from chaos.mirror import Stuck, kill_leader, until
from tests.chaos.test_tiering import READ, waves
from tests.pipelines.compaction_kit import run_here

from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError, StorageFault
from anabranch.pipelines import compaction as job
from anabranch.pipelines import tiering as pipeline
from anabranch.pipelines.compaction import compact
from anabranch.pipelines.tiering import Where, tier
from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.testing import LocalCluster
from chaos import compacting, tiering


def test_a_run_is_judged_by_the_latest_record_of_each_key(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "waves", waves)
    monkeypatch.setattr(job, "run_groups", run_here)
    with LocalCluster(brokers=1, racks=["a"], folder=tmp_path) as cluster:
        at = cluster.bootstrap_servers
        settings = {**compacting.COMPACTED, "diskless.tiering.age.ms": "0"}
        cluster.create_topic(
            compacting.TOPIC, partitions=compacting.PARTITIONS, replication_factor=-1,
            config=settings,
        )  # fmt: skip
        with compacting.KeyedSender(at) as sender, compacting.Reader(at, compacting.TOPIC):
            time.sleep(1.5)
        (found,) = tmp_path.rglob(COORDINATOR)
        coordinator = compacting.CompactionCoordinator(found.parent)
        where = Where(at, f"file://{found.parent}/{OBJECTS}")
        assert tier(None, where).segments == compacting.PARTITIONS
        assert not coordinator.news() and compacting.due(at)
        assert compact(None, where).faults == {}
        assert coordinator.news() and not compacting.due(at)
        assert 0 < compacting.judge(at, sender, READ) < sender.sent
        key = next(each for each, latest in sender.latest.items() if latest.value)
        latest = sender.latest[key]
        for wrong in (latest._replace(offset=latest.offset + 1), latest._replace(value=None)):
            planted = SimpleNamespace(latest={**sender.latest, key: wrong}, refused=0)
            with pytest.raises(Stuck, match="1 keys are wrong"):
                compacting.judge(at, planted, READ)
        lost = SimpleNamespace(latest={**sender.latest, b"lost": latest}, refused=0)
        with pytest.raises(Stuck, match="1 keys are wrong"):
            compacting.judge(at, lost, READ)
        gone = SimpleNamespace(latest={b"gone": latest._replace(value=None)}, refused=0)
        compacting.judge(at, gone, READ)


@pytest.mark.slow
def test_jobs_go_on_beside_kills_of_brokers(tmp_path, monkeypatch):
    """Tasks run in this process, without Spark; what is killed are brokers."""
    monkeypatch.setattr(pipeline, "waves", waves)
    monkeypatch.setattr(job, "run_groups", run_here)
    monkeypatch.setattr(tiering, "AWAY_SECONDS", 3.0)
    over, wrong = threading.Event(), []
    with LocalCluster(brokers=3, racks=["a", "b", "c"], folder=tmp_path, processes=True) as cluster:
        at = cluster.bootstrap_servers
        cluster.create_topic(
            compacting.TOPIC, partitions=compacting.PARTITIONS, replication_factor=-1,
            config=compacting.COMPACTED,
        )  # fmt: skip
        (found,) = tmp_path.rglob(COORDINATOR)
        coordinator = compacting.CompactionCoordinator(found.parent)
        where = Where(at, f"file://{found.parent}/{OBJECTS}")

        def jobs():
            while not over.is_set():
                for run in (tier, compact):
                    try:
                        wrong.extend(run(None, where).faults.values())
                    except (ApiError, ConnectionLost, StorageFault) as fault:
                        wrong.append(str(fault))

        working = threading.Thread(target=jobs)
        working.start()
        try:
            with compacting.KeyedSender(at) as sender:
                until(coordinator.news, "nothing is compacted")
                with compacting.Reader(at, compacting.TOPIC) as reader:
                    for breaks in (
                        lambda: kill_leader(cluster, compacting.TOPIC),
                        lambda: tiering.kill_controller(cluster),
                        coordinator.away,
                        coordinator.lapse,
                    ):
                        breaks()
                        before = coordinator.news()
                        until(lambda before=before: coordinator.news() > before, "no news")
            until(lambda: not coordinator.rows(), "rows are left")
            until(lambda: not compacting.due(at), "the job leaves what is due")
        finally:
            over.set()
            working.join()
        assert reader.rounds
        assert 0 < compacting.judge(at, sender, reader) < sender.sent / 10
        cluster_id = cluster.cluster_id
    assert asyncio.run(tiering.verified(coordinator, where.storage_url, cluster_id)) == []
