"""A partition moves between two folders of a running node, while a producer writes; then the node
is killed, and what was acknowledged is found in the new folder. KIP-113."""

from __future__ import annotations

import asyncio
import signal
from itertools import count
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode

from anabranch.client.admin import describe_log_dirs
from anabranch.client.cluster import Cluster
from anabranch.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)


@pytest.fixture
def node(tmp_path):
    made = ProcessNode(f"{tmp_path}/a,{tmp_path}/b").start().ready()
    yield made
    made.close()


def asked(node, work):
    async def ask():
        async with Cluster(node.bootstrap) as cluster:
            await cluster.metadata([])
            return await work(cluster)

    return asyncio.run(ask())


def alter(node, path):
    """The codes of the answer."""
    topics = [AlterReplicaLogDirTopic("t", [0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(str(path), topics)])
    answer = asked(node, lambda cluster: cluster.send_to(1, request))
    return [each.error_code for topic in answer.results for each in topic.partitions]


def places(node):
    """(folder, is future) of the partition."""
    folders = asked(node, lambda cluster: describe_log_dirs(cluster, 1))
    return [
        (Path(folder.log_dir), part.is_future_key)
        for folder in folders
        for topic in folder.topics
        if topic.name == "t"
        for part in topic.partitions
    ]


def read(node, end):
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "log_level": 0}
    )
    reader.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    values = []

    def found():
        values.extend(
            int(each.value()[:8]) for each in reader.consume(1000, 0.2) if not each.error()
        )
        return len(values) >= end

    until(found)
    reader.close()
    return values


def test_a_partition_moves_while_it_is_written_and_is_there_after_a_kill(node, tmp_path):
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    acknowledged, numbers = [], count()

    def write(records):
        for number in (next(numbers) for _ in range(records)):
            producer.produce(
                "t",
                b"%08d" % number + bytes(1000),
                partition=0,
                on_delivery=lambda error, _, number=number: error or acknowledged.append(number),
            )
            producer.poll(0)
        assert producer.flush(20) == 0

    write(5000)
    ((home, _),) = places(node)
    other = next(each for each in (tmp_path / "a", tmp_path / "b") if each != home)
    assert alter(node, home) == [0]
    assert places(node) == [(home, False)]
    assert alter(node, other) == [0]

    def moved():
        write(200)
        return places(node) == [(other, False)]

    until(moved)
    write(100)
    assert acknowledged == list(range(len(acknowledged)))
    node.process.send_signal(signal.SIGKILL)
    node.ended()
    node.start()
    node.ready()
    assert places(node) == [(other, False)]
    assert read(node, len(acknowledged)) == acknowledged
    assert not [each for each in home.iterdir() if each.name.startswith("t-0")]
