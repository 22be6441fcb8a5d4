"""Two clusters of one node each, and the flow between them."""

from __future__ import annotations

import asyncio
import itertools
import os

import pytest
from tests.pipelines.kafka_cluster import KafkaCluster

from anabranch.client.cluster import Cluster
from anabranch.client.committed import Committed
from anabranch.client.fetch import list_offsets
from anabranch.client.produce import produce
from anabranch.client.ranges import ReadOptions, read_range
from anabranch.core.mirror.config import read_config
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from anabranch.testing import LocalCluster


class TwoClusters:
    """A source `east`, a target `west`, and what lies in them."""

    def __init__(self, east, west):
        self.east = east
        self.west = west
        self._made = itertools.count()

    def keys(self, **more):
        """An mm2.properties for both, as keys; `more` with `__` for dots is not needed: dicts."""
        return {
            "clusters": "east, west",
            "east.bootstrap.servers": self.east.bootstrap_servers,
            "west.bootstrap.servers": self.west.bootstrap_servers,
            "east->west.enabled": "true",
            "replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "2",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            **more,
        }

    def config(self, **more):
        """The same, read."""
        return read_config(self.keys(**more))

    def topic(self, partitions=1, config=None, *, cluster=None):
        """A new topic at the source."""
        name = f"t{next(self._made)}"
        config = {"retention.ms": -1, **(config or {})}
        (cluster or self.east).create_topic(name, partitions=partitions, config=config)
        return name

    def produce(self, topic, partition, *batches, cluster=None):
        """Append batches at the source."""

        async def work():
            async with Cluster((cluster or self.east).bootstrap_servers) as found:
                for batch in batches:
                    await produce(found, topic, partition, batch)

        asyncio.run(work())

    def read(self, cluster, topic, partition=0):
        """The committed records of a partition."""
        return asyncio.run(read_all(cluster.bootstrap_servers, topic, partition))


async def read_all(bootstrap, topic, partition=0):
    """The committed records of a partition, of a topic that may not be there yet."""
    async with Cluster(bootstrap) as cluster:
        start = (await list_offsets(cluster, topic, EARLIEST, [partition]))[partition]
        end = (await list_offsets(cluster, topic, LATEST, [partition], isolation_level=1))[
            partition
        ]
        found = []
        reading = ReadOptions(isolation_level=1)
        async for part in read_range(cluster, topic, partition, start, end, reading=reading):
            committed = Committed(part.aborted)
            for position, header in walk(part.records):
                if committed.shows(header, part.records, position):
                    found += decode_records(part.records, position)
        return found


@pytest.fixture(scope="session")
def clusters(tmp_path_factory):
    """Both clusters, for all tests of a worker; with ANABRANCH_TEST_PEER=kafka of Apache Kafka, and
    with kafka-target or kafka-source one of them."""
    peer = os.environ.get("ANABRANCH_TEST_PEER", "")
    folder = tmp_path_factory.mktemp("kafka")

    def cluster(end):
        if peer in ("kafka", f"kafka-{end}"):
            return KafkaCluster(folder / end)
        return LocalCluster(processes=True)

    with cluster("source") as east, cluster("target") as west:
        yield TwoClusters(east, west)
