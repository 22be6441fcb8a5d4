"""Leaders of source and target that are killed in mid-stream: each record comes once."""

from __future__ import annotations

import threading

import pytest
from tests.pipelines.mirror.conftest import TwoClusters
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, batch, mirror

from anabranch.testing import LocalCluster

CONFIG = {"min.insync.replicas": 2, "transaction.state.log.replication.factor": 3}
CHUNKS = 60


@pytest.mark.slow
def test_each_record_comes_once_when_leaders_are_killed():
    with (
        LocalCluster(brokers=3, processes=True, config=CONFIG) as east,
        LocalCluster(brokers=3, processes=True, config=CONFIG) as west,
    ):
        pair = TwoClusters(east, west)
        east.create_topic("t", partitions=2, replication_factor=3, config={"retention.ms": -1})
        more = {**EXACTLY_ONCE, "replication.factor": "3", "offset.storage.replication.factor": "3"}
        mirror(pair, "t", more, seconds=0.5)

        def produce():
            for first in range(CHUNKS):
                for partition in range(2):
                    pair.produce("t", partition, batch(first * 100, 100))

        def kills():
            producing = threading.Thread(target=produce)
            producing.start()
            with east.kill(east.leader("t", 0)):
                east.leader("t", 0)
                with west.kill(west.leader("east.t", 0)):
                    west.leader("east.t", 0)
                    producing.join()

        mirror(pair, "t", more, seconds=25.0, during=kills)
        (answer,) = mirror(pair, "t", more, seconds=5.0)
        assert answer.faults == {}
        for partition in range(2):
            source = [each.value for each in pair.read(east, "t", partition)]
            target = [each.value for each in pair.read(west, "east.t", partition)]
            assert len(source) >= CHUNKS * 100, "a plain producer may write a batch twice"
            assert target == source
