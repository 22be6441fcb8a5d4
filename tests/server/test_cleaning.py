"""Segments and files that a real node rolls and removes by its settings."""

from __future__ import annotations

import contextlib

import pytest
from node_kit import ThreadNode
from server_kit import eventually
from test_disks import connected, latest, produce

from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

RECORD_BYTES = 300_000
SEGMENT_BYTES = 1 << 20
"""The least that Kafka 4.1 takes; three records fill it."""
OFTEN = {
    "log.retention.check.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.segment.delete.delay.ms": "50",
}


@pytest.fixture
def node(tmp_path):
    started = ThreadNode(tmp_path / "logs", **OFTEN).start()
    yield started
    started.stop()


async def create(connection, **configs):
    configs = {"segment.bytes": str(SEGMENT_BYTES), **configs}
    named = [
        CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=named)
    answer = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 6)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


async def earliest(connection):
    part = ListOffsetsPartition(partition_index=0, timestamp=-2)
    topic = ListOffsetsTopic(name="t", partitions=[part])
    answer = await connection.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return answer.topics[0].partitions[0].offset


def names(folder):
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir())
    return []


def segments(folder):
    return [int(name[:20]) for name in names(folder) if name.endswith(".log")]


def log_of(node):
    return node.node.broker.broker.partitions.get("t", 0).log


async def fill(connection, count):
    for _ in range(count):
        assert (await produce(connection, size=RECORD_BYTES)).error_code == 0


async def test_retention_by_size_removes_segments_and_later_their_files(node, tmp_path):
    connection = await connected(node)
    await create(connection, retention_bytes=str(SEGMENT_BYTES))
    await fill(connection, 12)
    log, folder = log_of(node), tmp_path / "logs" / "t-0"
    await eventually(lambda: log.start_offset == 6)
    await eventually(lambda: segments(folder) == [6, 9])
    await eventually(lambda: not any(name.endswith(".deleted") for name in names(folder)))
    assert (await earliest(connection), await latest(connection)) == (6, 12)
    await connection.close()


async def test_retention_by_time_empties_the_log_and_offsets_go_on(node, tmp_path):
    connection = await connected(node)
    await create(connection, retention_ms="1")
    await fill(connection, 4)
    log, folder = log_of(node), tmp_path / "logs" / "t-0"
    await eventually(lambda: log.start_offset == 4)
    await eventually(lambda: set(segments(folder)) <= {4})
    assert (await produce(connection)).base_offset == 4
    await connection.close()


async def test_segments_roll_by_age(node, tmp_path):
    connection = await connected(node)
    await create(connection, segment_ms="100")
    await fill(connection, 1)
    folder = tmp_path / "logs" / "t-0"
    log = log_of(node)

    async def rolled():
        await fill(connection, 1)
        return len(segments(folder)) > 1

    while log.end_offset < 50 and not await rolled():
        pass
    await eventually(lambda: len(segments(folder)) > 1)
    await connection.close()


async def test_deleted_records_take_their_segments_with_them(node, tmp_path):
    connection = await connected(node)
    await create(connection)
    await fill(connection, 9)
    part = DeleteRecordsPartition(partition_index=0, offset=7)
    topic = DeleteRecordsTopic(name="t", partitions=[part])
    answer = await connection.send(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
    assert answer.topics[0].partitions[0].low_watermark == 7
    assert await earliest(connection) == 7
    folder = tmp_path / "logs" / "t-0"
    await eventually(lambda: segments(folder) == [6])
    await connection.close()


async def test_a_deleted_topic_leaves_its_name_at_once_and_the_disk_later(node, tmp_path):
    connection = await connected(node)
    await create(connection)
    await fill(connection, 2)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
    answer = await connection.send(request, 6)
    assert answer.responses[0].error_code == 0
    logs = tmp_path / "logs"
    await eventually(lambda: "t-0" not in names(logs))
    await create(connection)
    assert (await produce(connection)).base_offset == 0
    await eventually(lambda: not any(name.endswith("-delete") for name in names(logs)))
    await connection.close()
