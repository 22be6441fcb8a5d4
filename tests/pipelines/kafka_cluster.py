"""A node of Apache Kafka with what tests of pipelines need of a `LocalCluster`."""

from __future__ import annotations

import asyncio

from anabranch.client.admin import create_topic
from anabranch.client.cluster import Cluster


class KafkaCluster:
    """A node of Apache Kafka with what these tests need of a `LocalCluster`."""

    def __init__(self, folder):
        from bench.servers import Kafka

        folder.mkdir()
        self._server = Kafka(KAFKA, folder)

    def __enter__(self):
        self._server.start()
        self._server.await_port()
        self.bootstrap_servers = self._server.bootstrap
        return self

    def __exit__(self, *_fault):
        self._server.stop()

    def create_topic(self, name, *, partitions, config):
        """Create a topic."""

        async def work():
            async with Cluster(self.bootstrap_servers) as cluster:
                configs = {key: str(value) for key, value in config.items()}
                await create_topic(
                    cluster, name, partitions=partitions, replication_factor=1, configs=configs
                )

        asyncio.run(work())


KAFKA = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1, "group.initial.rebalance.delay.ms": 0,
}  # fmt: skip
