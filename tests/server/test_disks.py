"""Disks that are full, that fail, and that are slow, under a node with real sockets. R5, R15."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import threading

import pytest
from node_kit import ProcessNode, ThreadNode
from server_kit import eventually

from anabranch.client.connection import Connection
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch
from anabranch.server.files import RealFile

TMPFS_BYTES = 12 << 20
VALUE_BYTES = 500_000


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of its own that is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def running(folders, **settings):
    node = ThreadNode(",".join(map(str, folders)), **settings).start()
    try:
        yield node
    finally:
        node.stop()


async def connected(node):
    host, port = node.bootstrap.split(":")
    return await Connection.open(host, int(port))


async def create(connection, partitions):
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    answer = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 6)
    assert answer.topics[0].error_code == 0


async def produce(connection, partition=0, *, size=10, acks=1):
    records = build_batch([Record(0, -1, None, bytes(size))])
    part = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name="t", partition_data=[part])
    message = ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[topic])
    answer = await connection.send(message, 9)
    return answer.responses[0].partition_responses[0]


async def latest(connection, partition=0):
    part = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    topic = ListOffsetsTopic(name="t", partitions=[part])
    answer = await connection.send(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return answer.topics[0].partitions[0].offset


async def log_dirs(connection):
    """Of each folder: the error, and the partitions in it."""
    answer = await connection.send(DescribeLogDirsRequest(topics=None), 4)
    return {
        each.log_dir: (
            each.error_code,
            [part.partition_index for topic in each.topics for part in topic.partitions],
        )
        for each in answer.results
    }


async def placed(connection, folder):
    """A partition in `folder`, and one elsewhere."""
    here = (await log_dirs(connection))[str(folder)][1]
    return here[0], next(each for each in range(2) if each not in here)


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path, small_disk):
    folders = (tmp_path / "large", small_disk)
    with running(folders) as node:
        connection = await connected(node)
        await create(connection, 2)
        here, elsewhere = await placed(connection, small_disk)
        filler = small_disk / "filler"
        filler.write_bytes(bytes(6 << 20))
        acknowledged = 0
        while (answer := await produce(connection, here, size=VALUE_BYTES)).error_code == 0:
            assert answer.base_offset == acknowledged
            acknowledged += 1
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert 0 < acknowledged < TMPFS_BYTES // VALUE_BYTES
        again = await produce(connection, here, size=VALUE_BYTES)
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(connection, elsewhere)).error_code == 0
        filler.unlink()
        answer = again
        while answer.error_code:  # it is looked every second
            await asyncio.sleep(0.1)
            answer = await produce(connection, here, size=VALUE_BYTES)
        assert (answer.error_code, answer.base_offset) == (0, acknowledged)
        assert await latest(connection, here) == acknowledged + 1
        await connection.close()
    with running(folders) as node:
        connection = await connected(node)
        assert await latest(connection, here) == acknowledged + 1
        assert (await produce(connection, here)).base_offset == acknowledged + 1
        await connection.close()


async def test_a_disk_that_fails_to_sync_goes_offline_and_no_other(tmp_path, monkeypatch):
    bad = tmp_path / "bad"
    whole = RealFile.sync

    broken = threading.Event()  # not before it is known what lies there: new logs are synced, too

    def sync(file):
        if broken.is_set() and file.path.startswith(str(bad)):
            raise StorageFault(f"{file.path}: Input/output error")
        whole(file)

    monkeypatch.setattr(RealFile, "sync", sync)
    with running((tmp_path / "good", bad), **{"log.flush.interval.messages": "1"}) as node:
        connection = await connected(node)
        await create(connection, 2)
        here, elsewhere = await placed(connection, bad)
        broken.set()
        assert (await produce(connection, here)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        later = await produce(connection, here, acks=-1)
        assert later.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(connection, elsewhere)).error_code == 0
        folders = await log_dirs(connection)
        assert folders[str(bad)] == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert folders[str(tmp_path / "good")] == (0, [elsewhere])
        await connection.close()
    assert not (bad / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()


async def fetch(connection, *partitions):
    """Error and bytes of each partition, from its first record on."""
    parts = [FetchPartition(partition=each, partition_max_bytes=1 << 20) for each in partitions]
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=parts)])
    answer = await connection.send(request, 12)
    (topic,) = answer.responses
    return {
        each.partition_index: (each.error_code, bytes(each.records or b""))
        for each in topic.partitions
    }


async def test_a_disk_that_fails_to_read_goes_offline_and_no_other(tmp_path, monkeypatch):
    """What is not in memory is read in a thread, and the fault is the folder's all the same."""
    bad, preadv, pread = tmp_path / "bad", os.preadv, os.pread

    def is_bad(handle):
        return os.readlink(f"/proc/self/fd/{handle}").startswith(f"{bad}/t-")

    def misses(handle, *rest):
        if is_bad(handle):
            raise BlockingIOError
        return preadv(handle, *rest)

    def fails(handle, *rest):
        if is_bad(handle):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(handle, *rest)

    with running((tmp_path / "good", bad)) as node:
        connection = await connected(node)
        await create(connection, 2)
        here, elsewhere = await placed(connection, bad)
        for each in (here, elsewhere):
            assert (await produce(connection, each)).error_code == 0
        monkeypatch.setattr(os, "preadv", misses)
        monkeypatch.setattr(os, "pread", fails)
        found = await fetch(connection, here, elsewhere)
        assert found[here] == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert found[elsewhere][0] == 0 and found[elsewhere][1]
        assert (await log_dirs(connection))[str(bad)] == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert (await produce(connection, here)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(connection, elsewhere)).error_code == 0
        await connection.close()


@pytest.mark.parametrize("acks", [1, -1])
async def test_one_sync_serves_all_who_wait_and_nobody_sees_more(tmp_path, monkeypatch, acks):
    """R5: with flush.messages=1 an answer and the high watermark wait for the disk."""
    go_on, synced, whole = threading.Event(), [], RealFile.sync

    def sync(file):
        if "/t-0/" in file.path:
            synced.append(file.path)
            assert go_on.wait(20)
        whole(file)

    monkeypatch.setattr(RealFile, "sync", sync)
    producers = 40
    with running((tmp_path,), **{"log.flush.interval.messages": "1"}) as node:
        connections = await asyncio.gather(*(connected(node) for _ in range(producers)))
        asking = await connected(node)
        await create(asking, 1)
        sent = [asyncio.ensure_future(produce(each, acks=acks)) for each in connections]
        log = None

        def all_appended():
            nonlocal log
            log = node.node.broker.broker.partitions.get("t", 0).log
            return log.end_offset == producers

        try:
            await eventually(all_appended)
            assert not any(each.done() for each in sent)
            assert await latest(asking) == 0
        finally:
            go_on.set()
        answers = await asyncio.gather(*sent)
        assert sorted(each.base_offset for each in answers) == list(range(producers))
        assert {each.error_code for each in answers} == {0}
        assert await latest(asking) == producers
        assert len(synced) == 2  # the first record's, and one for all that came meanwhile
        for each in (*connections, asking):
            await each.close()


async def test_flush_ms_bounds_what_a_power_cut_takes(tmp_path):
    settings = {"log.flush.interval.ms": "50", "log.flush.scheduler.interval.ms": "50"}
    with running((tmp_path,), **settings) as node:
        connection = await connected(node)
        await create(connection, 1)
        assert (await produce(connection)).error_code == 0
        log = node.node.broker.broker.partitions.get("t", 0).log
        await eventually(lambda: log.flushed_offset == 1)
        await connection.close()


def test_a_disk_that_is_full_at_the_start_is_said_in_one_line(small_disk):
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    folder = small_disk / "node"
    folder.mkdir()
    node = ProcessNode(folder).start()
    try:
        code, errors = node.ended()
    finally:
        node.close()
    lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert (code, len(lines)) == (1, 1), errors
    assert "Traceback" not in errors
    assert str(folder) in lines[0]
    filler.unlink()
    again = ProcessNode(folder).start().ready()
    again.close()
