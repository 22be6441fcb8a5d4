"""A classic topic becomes diskless while clients write and read: real nodes, real clients."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from tests.clients.members import until
from tests.server.three_kit import RACKS, bootstrap_of, is_whole, running, three_threads

PARTITIONS = 4
LONGEST_PAUSE_S = 15.0
"""Of a producer, on a machine on which much else is at work; idle it is below a second."""
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "65536",
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def nodes(tmp_path):
    (tmp_path / "objects").mkdir()
    cluster = three_threads(
        tmp_path,
        racks=RACKS,
        diskless_storage_system_enable="true",
        diskless_storage_url=f"file://{tmp_path}/objects",
        remote_log_storage_system_enable="true",
        diskless_coordinator_url=f"sqlite://{tmp_path}/coordinator.db",
        remote_log_manager_task_interval_ms="500",
    )
    with running(cluster) as started:
        yield started


def alter(admin, name, **values):
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def configs_of(admin, name):
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = admin.describe_configs([resource])[resource].result(30)
    return {key: entry.value for key, entry in found.items()}


def is_diskless(admin, name):
    return configs_of(admin, name).get("diskless.enable") == "true"


class Writer(threading.Thread):
    """An idempotent producer that writes numbers in order to each partition."""

    def __init__(self, bootstrap, name):
        super().__init__()
        self.name_, self.stopping = name, threading.Event()
        self.acknowledged = defaultdict(list)
        self.failures = []
        self.gaps = []
        self._last = time.monotonic()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "batch.num.messages": 50,
                "log_level": 0, "delivery.timeout.ms": 60_000,
            }
        )  # fmt: skip

    def _told(self, error, message):
        now = time.monotonic()
        if error:
            self.failures.append(error)
            return
        self.gaps.append(now - self._last)
        self._last = now
        self.acknowledged[message.partition()].append((message.offset(), message.value()))

    def run(self):
        number = 0
        while not self.stopping.is_set():
            for partition in range(PARTITIONS):
                value = b"%d " % number + b"x" * 400
                self.producer.produce(
                    self.name_, value, partition=partition, on_delivery=self._told
                )
            number += 1
            self.producer.poll(0)
            time.sleep(0.005)
        assert self.producer.flush(60) == 0


def numbers(rows):
    return [int(value.split()[0]) for value in rows]


def test_nothing_is_lost_doubled_or_reordered_while_a_topic_becomes_diskless(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic("t", PARTITIONS, replication_factor=3, config=TOPIC)
    admin.create_topics([topic])["t"].result(30)
    until(lambda: is_whole(bootstrap, "t"), 30)
    group = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0,
            "auto.offset.reset": "earliest", "enable.auto.commit": True,
        }
    )  # fmt: skip
    group.subscribe(["t"])
    seen = defaultdict(list)

    def read(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in group.consume(500, 0.2):
                assert message.error() is None, message.error()
                seen[message.partition()].append((message.offset(), message.value()))

    writer = Writer(bootstrap, "t")
    writer.start()
    try:
        read(3)
        alter(admin, "t", diskless_enable="true")
        began = time.monotonic()
        while not is_diskless(admin, "t"):
            read(0.5)
            assert time.monotonic() - began < 90, configs_of(admin, "t")
        took = time.monotonic() - began
        read(3)
    finally:
        writer.stopping.set()
        writer.join()
    assert not writer.failures
    expected = {each: [value for _, value in rows] for each, rows in writer.acknowledged.items()}
    count = sum(map(len, expected.values()))
    end = time.monotonic() + 60
    while sum(map(len, seen.values())) < count and time.monotonic() < end:
        read(0.5)
    group.close()
    for partition in range(PARTITIONS):
        rows = seen[partition]
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        assert [value for _, value in rows] == expected[partition]
        assert numbers(value for _, value in rows) == list(range(len(rows)))
    print(f"\n{count} records; diskless after {took:.1f} s; longest pause {max(writer.gaps):.2f} s")
    assert max(writer.gaps) < LONGEST_PAUSE_S
    again = Consumer({"bootstrap.servers": bootstrap, "group.id": "again", "log_level": 0})
    again.assign([TopicPartition("t", 0, 0)])
    whole, end = [], time.monotonic() + 60
    while len(whole) < len(expected[0]) and time.monotonic() < end:
        whole += [(m.offset(), m.value()) for m in again.consume(500, 0.5) if not m.error()]
    again.close()
    assert whole == seen[0]
    until(lambda: not list(tmp_path.glob("[123]/t-*")), 30)
    (latest,) = admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}).values()
    assert latest.result(30).offset == len(whole)


def test_a_topic_that_is_not_fit_is_refused_with_the_reason(nodes):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = {
        "plain": ({}, "cannot become diskless without remote.storage.enable=true"),
        "compact": ({"cleanup.policy": "compact"}, "compacted topics have no remote log"),
        "unclean": (
            {"remote.storage.enable": "true", "unclean.leader.election.enable": "true"},
            "unclean.leader.election.enable=true",
        ),
        "still": (
            {"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
            "remote.log.copy.disable=true",
        ),
    }
    topics = [
        NewTopic(name, 1, replication_factor=3, config=own) for name, (own, _) in made.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    until(lambda: is_whole(bootstrap, *made), 30)
    for name, (_, why) in made.items():
        with pytest.raises(KafkaException, match=why):
            alter(admin, name, diskless_enable="true")
        assert not is_diskless(admin, name)
