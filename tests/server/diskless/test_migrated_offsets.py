"""Offsets of a topic that was classic: ListOffsets, DeleteRecords and retention across the end."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.diskless.test_migration import alter, is_diskless
from tests.server.three_kit import RACKS, bootstrap_of, is_whole, running, three_threads

from anabranch.client.cluster import Cluster
from anabranch.client.fetch import list_offsets
from anabranch.client.views.migration import migration_view
from anabranch.core.types import EARLIEST, LATEST

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -3, -4, -5
BEGIN, END = 200, 300
"""Where partition 0 becomes diskless, and where it ends."""
HOUR_MS = 3_600_000
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4096",
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "0",
    "local.retention.ms": "1",
    "retention.ms": "-1",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    folder = tmp_path_factory.mktemp("migrated")
    (folder / "objects").mkdir()
    cluster = three_threads(
        folder,
        racks=RACKS,
        diskless_storage_system_enable="true",
        diskless_storage_url=f"file://{folder}/objects",
        remote_log_storage_system_enable="true",
        diskless_coordinator_url=f"sqlite://{folder}/coordinator.db",
        remote_log_manager_task_interval_ms="500",
        log_retention_check_interval_ms="500",
        transaction_state_log_replication_factor="3",
    )
    with running(cluster) as started:
        yield bootstrap_of(started)


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def made(admin, bootstrap, name):
    admin.create_topics([NewTopic(name, 2, replication_factor=3, config=TOPIC)])[name].result(30)
    until(lambda: is_whole(bootstrap, name), 30)


def write(bootstrap, name, first, end, first_ms):
    """Records of which each is a second younger than the one before."""
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
    for number in range(first, end):
        producer.produce(
            name, b"%d" % number + b"x" * 60, partition=0, timestamp=first_ms + number * 1000,
            on_delivery=lambda error, _: error and failures.append(error),
        )  # fmt: skip
        if number % 20 == 19:
            producer.flush(30)
    assert producer.flush(30) == 0
    assert not failures


def offsets(bootstrap, name, *timestamps):
    async def ask():
        async with Cluster(bootstrap) as cluster:
            return [(await list_offsets(cluster, name, each))[0] for each in timestamps]

    return asyncio.run(ask())


def read(bootstrap, name, first, count):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0,
            "auto.offset.reset": "error",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(name, 0, first)])
    found, deadline = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            found.append((message.offset(), int(message.value().split(b"x")[0])))
    consumer.close()
    return found


def migrated(admin, bootstrap, name, first_ms):
    made(admin, bootstrap, name)
    write(bootstrap, name, 0, BEGIN, first_ms)
    alter(admin, name, diskless_enable="true")
    until(lambda: is_diskless(admin, name), 60)
    write(bootstrap, name, BEGIN, END, first_ms)


def test_offsets_are_found_on_both_sides_of_the_end(admin, bootstrap):
    first_ms = int(time.time() * 1000) - HOUR_MS
    migrated(admin, bootstrap, "found", first_ms)

    def at(number, off_ms=0):
        return first_ms + number * 1000 + off_ms

    assert offsets(bootstrap, "found", EARLIEST, LATEST) == [0, END]
    wanted = {
        at(0, -5): 0, at(7): 7, at(BEGIN - 1): BEGIN - 1, at(BEGIN - 1, 1): BEGIN,
        at(BEGIN): BEGIN, at(BEGIN, 1): BEGIN + 1, at(END - 1): END - 1, at(END - 1, 1): -1,
    }  # fmt: skip
    assert offsets(bootstrap, "found", *wanted) == list(wanted.values())
    assert offsets(bootstrap, "found", MAX_TIMESTAMP) == [END - 1]
    assert offsets(bootstrap, "found", EARLIEST_LOCAL, LATEST_TIERED) == [BEGIN, BEGIN - 1]
    assert read(bootstrap, "found", 0, END) == [(each, each) for each in range(END)]


def test_records_are_deleted_on_both_sides_of_the_end(admin, bootstrap):
    migrated(admin, bootstrap, "deleted", int(time.time() * 1000) - HOUR_MS)
    for before in (50, BEGIN - 1, BEGIN, BEGIN + 1, 250, END):
        place = TopicPartition("deleted", 0, before)
        assert admin.delete_records([place])[place].result(30).low_watermark == before
        assert offsets(bootstrap, "deleted", EARLIEST, LATEST) == [before, END]
        rest = [(each, each) for each in range(before, END)]
        assert read(bootstrap, "deleted", before, len(rest)) == rest
        assert offsets(bootstrap, "deleted", EARLIEST_LOCAL) == [max(before, BEGIN)]


def test_retention_by_time_takes_what_was_classic_alone(admin, bootstrap):
    """The classic records are hours old, those after them are not."""
    made(admin, bootstrap, "aged")
    now_ms = int(time.time() * 1000)
    write(bootstrap, "aged", 0, BEGIN, now_ms - 5 * HOUR_MS)
    alter(admin, "aged", diskless_enable="true")
    until(lambda: is_diskless(admin, "aged"), 60)
    write(bootstrap, "aged", BEGIN, END, now_ms - BEGIN * 1000)
    alter(admin, "aged", retention_ms=str(HOUR_MS))
    until(lambda: offsets(bootstrap, "aged", EARLIEST) == [BEGIN], 60)
    rest = [(each, each) for each in range(BEGIN, END)]
    assert read(bootstrap, "aged", BEGIN, len(rest)) == rest


def test_retention_by_size_counts_both_sides(admin, bootstrap):
    migrated(admin, bootstrap, "sized", int(time.time() * 1000) - HOUR_MS)
    alter(admin, "sized", retention_bytes="12000")
    until(lambda: 0 < offsets(bootstrap, "sized", EARLIEST)[0] < BEGIN, 60)
    alter(admin, "sized", retention_bytes="1000")
    until(lambda: BEGIN <= offsets(bootstrap, "sized", EARLIEST)[0] <= END, 60)
    (first,) = offsets(bootstrap, "sized", EARLIEST)
    rest = [(each, each) for each in range(first, END)]
    assert read(bootstrap, "sized", first, len(rest)) == rest


def test_a_topic_of_which_all_was_deleted_goes_on_at_its_end(admin, bootstrap):
    made(admin, bootstrap, "emptied")
    write(bootstrap, "emptied", 0, BEGIN, int(time.time() * 1000))
    place = TopicPartition("emptied", 0, BEGIN)
    assert admin.delete_records([place])[place].result(30).low_watermark == BEGIN
    alter(admin, "emptied", diskless_enable="true")
    until(lambda: is_diskless(admin, "emptied"), 60)
    assert offsets(bootstrap, "emptied", EARLIEST, LATEST) == [BEGIN, BEGIN]
    write(bootstrap, "emptied", BEGIN, END, int(time.time() * 1000))
    assert read(bootstrap, "emptied", BEGIN, END - BEGIN) == [(n, n) for n in range(BEGIN, END)]


def test_a_partition_that_holds_the_migration_up_is_named_with_the_reason(admin, bootstrap):
    made(admin, bootstrap, "held")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("held", b"open", partition=1)
    assert producer.flush(30) == 0

    def waits():
        async def ask():
            async with Cluster(bootstrap) as cluster:
                told = await migration_view(cluster, "held")
            return [each["waits_for"] for each in told["partitions"]]

        return asyncio.run(ask())

    alter(admin, "held", diskless_enable="true")
    until(lambda: waits() == ["", "a transaction is open from offset 0 on"], 30)
    producer.commit_transaction(30)
    until(lambda: is_diskless(admin, "held"), 60)
