"""A cluster at either level of `transaction.version`, what is committed there, and a bad network.

With ANABRANCH_TEST_PEER=kafka the cluster is Apache Kafka (jars of `scripts/kafka-jars`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager

from anabranch.client.cluster import Cluster, check
from anabranch.client.committed import Committed
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.client.ranges import ReadOptions, read_range
from anabranch.core.types import LATEST
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.testing import LocalCluster

IS_KAFKA = os.environ.get("ANABRANCH_TEST_PEER") == "kafka"
SAFE_DOWNGRADE = 2
ONE_PARTITION = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
}


@contextmanager
def running(folder, level):
    """The addresses of a cluster whose `transaction.version` is `level`."""
    if IS_KAFKA:
        from bench.servers import Kafka

        server = Kafka(ONE_PARTITION, folder)
        server.start()
        try:
            asyncio.run(lower(server.bootstrap, level))
            yield server.bootstrap
        finally:
            server.stop()
    else:
        with LocalCluster() as cluster:
            asyncio.run(lower(cluster.bootstrap_servers, level))
            yield cluster.bootstrap_servers


async def lower(bootstrap, level):
    if level == 2:
        return
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=SAFE_DOWNGRADE
    )
    async with Cluster(bootstrap) as cluster:
        response = await cluster.send(
            UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update])
        )
        check(response.error_code, response.error_message)


async def create(cluster, topic, partitions):
    keep = CreatableTopicConfig(name="retention.ms", value="-1")  # the records' times are made up
    wanted = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, configs=[keep]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    response = await cluster.send(request)
    check(response.topics[0].error_code, response.topics[0].error_message)


def batch_of(*values):
    return build_batch([Record(at, 1_000, None, value) for at, value in enumerate(values)])


async def committed(cluster, topic, partitions):
    """(partition, offset) -> value, once no transaction is open any more."""
    found = {}
    for partition in range(partitions):
        while True:
            ends = [
                (await list_offsets(cluster, topic, LATEST, [partition], isolation_level=level))
                for level in (0, 1)
            ]
            if ends[0] == ends[1]:
                break
            await asyncio.sleep(0.05)
        until = ends[0][partition]
        reading = ReadOptions(isolation_level=1)
        async for part in read_range(cluster, topic, partition, 0, until, reading=reading):
            shown = Committed(part.aborted)
            for position, header in walk(part.records):
                if shown.shows(header, part.records, position):
                    whole = part.records[position : position + header.size_bytes]
                    for each in decode_records(whole):
                        found[partition, each.offset] = each.value
    return found


class BadNetwork:
    """Loses requests and answers of the kinds that a producer sends, by chance."""

    LOST = {0, 22, 24, 25, 26, 28}
    """Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit."""

    def __init__(self, chance, rate):
        self.chance = chance
        self.rate = rate
        self._send = Connection.send

    async def send(self, connection, message, *args, **kwargs):
        lost = type(message).api_key in self.LOST and self.chance.random() < self.rate
        answer_only = lost and self.chance.random() < 0.5
        if lost and not answer_only:
            raise ConnectionLost("the request was lost")
        response = await self._send(connection, message, *args, **kwargs)
        if lost:
            raise ConnectionLost("the answer was lost")
        return response

    def install(self, monkeypatch):
        network = self

        async def send(connection, *args, **kwargs):
            return await network.send(connection, *args, **kwargs)

        monkeypatch.setattr(Connection, "send", send)
