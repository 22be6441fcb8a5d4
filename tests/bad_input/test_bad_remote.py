"""Segments in a remote store that are not what was copied, and stores of others: place, reason and
remedy are said, what is sound is read, and no disk is taken for broken."""

from __future__ import annotations

import asyncio
import logging

import pytest
from bad_kit import SECONDS, eventually
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from node_kit import ThreadNode

from anabranch.core.errors import StorageFault
from anabranch.core.wire.batch import BATCH_OVERHEAD
from anabranch.server.config import load_config
from anabranch.server.diskless.stores import Stores

ON = {"remote.log.storage.system.enable": "true"}
TOPIC = {
    "remote.storage.enable": "true", "internal.segment.bytes": "16384",
    "local.retention.bytes": "1", "file.delete.delay.ms": "0",
}  # fmt: skip
RECORDS = 400


@pytest.fixture
def node(tmp_path):
    (tmp_path / "store").mkdir()
    made = ThreadNode(
        tmp_path / "data",
        remote_log_storage_system_enable="true",
        remote_storage_url=f"file://{tmp_path}/store",
        diskless_coordinator_url=f"sqlite://{tmp_path}/coordinator.db",
        remote_log_manager_task_interval_ms="200",
    ).start()
    yield made
    made.stop()


def read_at(bootstrap, offset, seconds):
    """The first record from an offset on that comes within some seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, offset)])
    message = consumer.poll(seconds)
    consumer.close()
    return None if message is None or message.error() else message


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path):
    held = bytearray(path.read_bytes())
    held[:BATCH_OVERHEAD] = b"\xff" * BATCH_OVERHEAD
    path.write_bytes(held)


def gone(path):
    path.unlink()


def odd(path):
    path.write_bytes(b"odd")


def test_a_remote_segment_that_is_cut_changed_or_gone(node, tmp_path, caplog):
    bootstrap = node.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce("t", b"%d " % number * 100)
        if number % 10 == 9:
            assert producer.flush(SECONDS) == 0
    replica = node.node.broker.broker.partitions.get("t", 0)
    eventually(lambda: replica.log.local_start_offset > RECORDS // 2, "local segments gone")
    found = sorted((tmp_path / "store").rglob("*.log"), key=lambda path: path.name)
    harms = ((cut, ".log"), (change, ".log"), (gone, ".log"), (gone, ".index"), (odd, ".index"))
    for path, (harm, suffix) in zip(found[1:], harms):
        harm(path.with_suffix(suffix))
    with caplog.at_level(logging.WARNING):
        for path, (_, suffix) in zip(found[1:], harms):
            caplog.clear()
            first = int(path.stem)
            offset = first if suffix == ".log" else first + 10
            last_of_it = first + 14 if path == found[1] else offset  # its first half is there
            assert read_at(bootstrap, last_of_it, 3) is None, path
            said = " ".join(str(vars(each)) for each in caplog.records)
            assert path.with_suffix(suffix).name in said and path.parent.name in said
            assert "cannot be read" in said and "put the object back" in said
    for path in (found[0], found[-1]):
        message = read_at(bootstrap, int(path.stem), SECONDS)
        assert message is not None and message.offset() == int(path.stem)
    assert replica.log.fault is None and not node.node.broker.broker.partitions.offline
    assert admin.list_topics("t", timeout=SECONDS).topics["t"].partitions[0].leader >= 0
    producer.produce("t", b"one more")
    assert producer.flush(SECONDS) == 0


def opening(folder, cluster):
    config = load_config(None, [
        f"log.dirs={folder}", *(f"{name}={value}" for name, value in ON.items()),
        f"remote.storage.url=file://{folder}/store",
        f"diskless.coordinator.url=sqlite://{folder}/{cluster}.db",
    ])  # fmt: skip

    async def open_and_close():
        stores = await Stores.open(config, cluster)
        await stores.close()

    asyncio.run(open_and_close())


def test_a_remote_store_of_another_cluster(tmp_path):
    (tmp_path / "store").mkdir()
    opening(tmp_path, "first")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageFault) as refused:
        opening(tmp_path, "second")
    said = str(refused.value)
    assert "'first'" in said and "'second'" in said
    assert "of its own in remote.storage.url" in said
    assert sorted(tmp_path.rglob("*")) == before
