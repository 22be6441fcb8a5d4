"""Diskless topics on three real brokers: any of them takes records, any of them gives them back."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from tests.server.three_kit import partitions_of

from anabranch.testing import LocalCluster

SECONDS = 30.0


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(brokers=3, racks=["a", "b", "c"]) as started:
        yield started


@pytest.fixture(scope="module")
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def make(admin, name, partitions=1, **configs):
    config = {"diskless.enable": "true", **configs}
    topic = NewTopic(name, partitions, replication_factor=-1, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS)


def at(cluster, broker_id):
    """The address of one broker."""
    broker = cluster.brokers[broker_id - 1]
    return f"{broker.host}:{broker.port}"


def producer(servers, **config):
    return Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 0, **config})


def write(servers, name, values, partition=0, **config):
    """Have every value acknowledged; their offsets."""
    offsets, failures = [], []

    def told(error, message):
        (failures if error else offsets).append(error or message.offset())

    writes = producer(servers, **config)
    for value in values:
        writes.produce(name, value, partition=partition, on_delivery=told)
        writes.poll(0)
    assert writes.flush(SECONDS) == 0
    assert not failures
    return offsets


def read(servers, name, count, partition=0, offset=OFFSET_BEGINNING):
    """So many values of a partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "log_level": 0})
    try:
        consumer.assign([TopicPartition(name, partition, offset)])
        found, until = [], time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < until:
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
        return found
    finally:
        consumer.close()


def offset_of(admin, name, spec):
    (future,) = admin.list_offsets({TopicPartition(name, 0): spec}).values()
    return future.result(SECONDS).offset


def test_an_idempotent_producer_writes_and_a_group_reads(cluster, admin):
    make(admin, "group", 3)
    servers = cluster.bootstrap_servers
    values = [b"%d" % each for each in range(300)]
    for partition in range(3):
        share = values[partition::3]
        taken = write(servers, "group", share, partition, **{"enable.idempotence": True})
        assert taken == list(range(len(share)))
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )  # fmt: skip
    consumer.subscribe(["group"])
    found, until = [], time.monotonic() + SECONDS
    while len(found) < 300 and time.monotonic() < until:
        found += [each.value() for each in consumer.consume(100, 0.2) if each.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(values)


def test_a_commit_wakes_a_reader_whichever_broker_it_reads_from(cluster, admin):
    make(admin, "wakes")
    servers = cluster.bootstrap_servers
    write(servers, "wakes", [b"first"])
    seen = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "none", "log_level": 0,
            "fetch.wait.max.ms": 20_000,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("wakes", 0, 1)])
    assert consumer.poll(0.5) is None

    def wait():
        message = consumer.poll(SECONDS)
        if message is not None and message.value() == b"second":
            seen.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun = time.monotonic()
    write(servers, "wakes", [b"second"])
    waiting.join(SECONDS)
    consumer.close()
    assert seen.is_set()
    assert time.monotonic() - begun < 10  # far less than the 20 s that it would wait else


def test_admin_tools_work_as_on_a_classic_topic(cluster, admin):
    make(admin, "admin", 1, **{"retention.ms": "-1"})
    servers = cluster.bootstrap_servers
    begun = int(time.time() * 1000)
    write(servers, "admin", [b"%d" % each for each in range(10)])
    assert offset_of(admin, "admin", OffsetSpec.latest()) == 10
    assert offset_of(admin, "admin", OffsetSpec.for_timestamp(begun)) == 0
    assert offset_of(admin, "admin", OffsetSpec.for_timestamp(begun + 3_600_000)) == -1
    (future,) = admin.delete_records([TopicPartition("admin", 0, 4)]).values()
    assert future.result(SECONDS).low_watermark == 4
    assert offset_of(admin, "admin", OffsetSpec.earliest()) == 4
    assert [each for each, _ in read(servers, "admin", 6)] == list(range(4, 10))
    for future in admin.create_partitions([NewPartitions("admin", 3)]).values():
        future.result(SECONDS)
    for server in servers.split(","):  # a client may ask any of them what there is
        partitions_of(AdminClient({"bootstrap.servers": server, "log_level": 0}), "admin", 3)
    assert write(servers, "admin", [b"x"], partition=2) == [0]
    for future in admin.delete_topics(["admin"]).values():
        future.result(SECONDS)


def test_retention_by_size_deletes_the_oldest(cluster, admin):
    make(admin, "size", 1, **{"retention.bytes": "20000"})
    servers = cluster.bootstrap_servers
    for _ in range(10):
        write(servers, "size", [b"x" * 10_000])
    until = time.monotonic() + SECONDS
    while (first := offset_of(admin, "size", OffsetSpec.earliest())) < 7:
        assert time.monotonic() < until, first
        time.sleep(0.2)
    assert len(read(servers, "size", 10 - first)) == 10 - first


def test_a_topic_without_a_remote_log_cannot_become_diskless(admin):
    topic = NewTopic("classic", 1, replication_factor=1)
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS)
    with pytest.raises(KafkaException, match=r"without remote\.storage\.enable=true"):
        make_diskless(admin, "classic")


def make_diskless(admin, name):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("diskless.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", name, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS)


def test_killed_brokers_lose_nothing_and_all_of_it_is_there_after_a_restart(cluster, admin):
    make(admin, "kept", 2)
    servers = cluster.bootstrap_servers
    stop, taken = threading.Event(), {0: [], 1: []}

    def told(error, message):
        if error is None:
            taken[message.partition()].append((message.offset(), message.value()))

    writes = producer(servers, **{"enable.idempotence": True, "linger.ms": 5})

    def write_on():
        number = 0
        while not stop.is_set():
            writes.produce("kept", b"%d" % number, partition=number % 2, on_delivery=told)
            writes.poll(0.002)
            number += 1

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        wait_for(lambda: len(taken[0]) > 50)
        with cluster.kill(2):
            had = len(taken[0]) + len(taken[1])
            wait_for(lambda: len(taken[0]) + len(taken[1]) > had + 50)
    finally:
        stop.set()
        writing.join()
    assert writes.flush(SECONDS) == 0
    with cluster.crash():
        pass
    for partition, expected in taken.items():
        found = read(servers, "kept", len(expected), partition)
        assert dict(expected).items() <= dict(found).items()
        assert [each for each, _ in found] == list(range(len(found)))
        values = [int(each) for _, each in found]
        assert values == sorted(set(values))


def wait_for(holds):
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_an_idempotent_producer_goes_on_in_a_topic_that_was_made_again(cluster, admin):
    """It keeps its sequence numbers, which the new topic has never seen."""
    make(admin, "again")
    faults, told = [], []
    writes = producer(
        cluster.bootstrap_servers, **{"enable.idempotence": True, "error_cb": faults.append}
    )

    def write_some(first):
        told.clear()
        for number in range(first, first + 5):
            writes.produce(
                "again", b"%d" % number, partition=0, on_delivery=lambda *each: told.append(each)
            )
        assert writes.flush(SECONDS) == 0
        return [(error, message.offset()) for error, message in told]

    assert write_some(0) == [(None, offset) for offset in range(5)]
    for future in admin.delete_topics(["again"]).values():
        future.result(SECONDS)
    make(admin, "again")
    assert write_some(5) == [(None, offset) for offset in range(5)]
    assert not faults
    values = [value for _, value in read(cluster.bootstrap_servers, "again", 5)]
    assert values == [b"5", b"6", b"7", b"8", b"9"]
