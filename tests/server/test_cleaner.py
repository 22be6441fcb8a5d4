"""R15: a real node compacts its logs beside the clients, and gives up cleanly where it must."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from node_kit import ThreadNode

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log import cleanable, compaction
from anabranch.core.types import TopicPartition as Place
from anabranch.server import cleaner_process

WAIT_S = 30.0
OFTEN = {
    "log.cleaner.backoff.ms": "20",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "http.listener": "127.0.0.1:0",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}
SMALL_BATCHES = {"linger.ms": 1, "batch.size": 5000}
KEYS = 20


@pytest.fixture
def node(tmp_path):
    started = ThreadNode(tmp_path / "logs", **OFTEN).start()
    yield started
    started.stop()


def until(condition, what):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def create(node, topic="t", **config):
    wanted = NewTopic(topic, 1, 1, config={**COMPACTED, **config})
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([wanted])[topic].result()


def produce(node, records, topic="t", **settings):
    refused = []
    producer = Producer({"bootstrap.servers": node.bootstrap, **SMALL_BATCHES, **settings})
    for key, value in records:
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda error, _: refused.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert not any(refused)


def updates(count, first=0):
    return [
        (b"key-%d" % (number % KEYS), b"%d" % number + bytes(100))
        for number in range(first, first + count)
    ]


def consume(node, topic="t", **settings):
    """Every (offset, key, value) that a client sees from the start on."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            **settings,
        }
    )
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
    consumer.assign([TopicPartition(topic, 0, low)])
    seen = []
    while not seen or seen[-1][0] < high - 1:
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None
        seen.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return seen


def replica_of(node, topic="t"):
    return node.node.broker.broker.partitions.get(topic, 0)


def cleaner_of(node):
    return node.node.broker.cleaner


def compacted_upto(node, topic="t"):
    replica = replica_of(node, topic)
    folder = node.node.broker.partitions.folders[replica.folder]
    return folder.clean_points.get(Place(topic, 0), 0)


def await_compacted(node, topic="t"):
    log = replica_of(node, topic).log
    until(lambda: compacted_upto(node, topic) == log.active.base_offset > 0, "not compacted")


def test_a_consumer_sees_the_newest_record_of_each_key_in_order(node):
    create(node)
    written = updates(3000)
    produce(node, written)
    await_compacted(node)
    seen = consume(node)
    assert [offset for offset, _, _ in seen] == sorted({offset for offset, _, _ in seen})
    assert len(seen) < 1000
    assert {key: value for _, key, value in seen} == dict(written)
    assert all(written[offset] == (key, value) for offset, key, value in seen)


def test_what_was_compacted_is_the_same_after_a_restart(node, tmp_path):
    create(node)
    produce(node, updates(3000), **{"compression.type": "zstd"})
    await_compacted(node)
    seen = consume(node)
    clean_point = compacted_upto(node)
    node.stop()
    again = ThreadNode(tmp_path / "logs", **OFTEN).start()
    try:
        assert compacted_upto(again) == clean_point
        assert consume(again) == seen
    finally:
        again.stop()


@pytest.mark.slow
def test_clients_write_while_the_log_under_them_is_compacted(node):
    create(node)
    written = []
    while len(written) < 6000 or (cleaner_of(node).passes_total < 2 and len(written) < 100_000):
        more = updates(1000, len(written))
        produce(node, more)
        written += more
    await_compacted(node)
    assert cleaner_of(node).passes_total > 1
    assert {key: value for _, key, value in consume(node)} == dict(written)


def test_compact_and_delete_does_both(node):
    create(node, **{"cleanup.policy": "compact,delete", "retention.bytes": "30000"})
    produce(node, [(b"%d" % number, bytes(500)) for number in range(1000)])
    log = replica_of(node).log
    until(lambda: log.size_bytes < 60_000 and log.start_offset > 0, "nothing was deleted")
    await_compacted(node)
    assert consume(node)[0][0] >= log.start_offset


@pytest.mark.own_faults
@pytest.mark.parametrize(
    "fault",
    [
        CorruptLog("rot", path="p", position=0, first_offset=0, last_offset=0),
        ValueError("nobody thought of it"),
    ],
)
def test_a_log_that_cannot_be_read_is_left_alone_and_the_others_go_on(node, monkeypatch, fault):
    real_job = compaction.job

    def rotten(log, found, **options):
        if log.topic_partition.topic == "bad":
            raise fault
        return real_job(log, found, **options)

    monkeypatch.setattr(compaction, "job", rotten)
    create(node, "bad")
    create(node, "good")
    produce(node, updates(3000), "bad")
    produce(node, updates(3000), "good")
    await_compacted(node, "good")
    until(lambda: Place("bad", 0) in cleaner_of(node).machine.uncleanable, "not marked")
    assert replica_of(node, "bad").log.fault is None
    assert len(consume(node, "bad")) == 3000
    assert cleaner_of(node).statistics()["uncleanable"] == 1


def test_a_topic_deleted_under_a_pass_ends_the_pass_and_nothing_else(node):
    create(node, **{"min.cleanable.dirty.ratio": "0.9"})
    node.node.broker.broker.config.__dict__["log_cleaner_io_max_bytes_per_second"] = 10_000.0
    produce(node, updates(3000))  # what is there is not compacted before anybody looks
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    cleaner = cleaner_of(node).machine
    until(lambda: cleaner.is_cleaning(Place("t", 0)), "no pass began")
    admin.delete_topics(["t"])["t"].result()
    until(lambda: not cleaner.is_cleaning(Place("t", 0)), "the pass went on")
    assert cleaner.uncleanable == {}
    node.node.broker.broker.config.__dict__["log_cleaner_io_max_bytes_per_second"] = 1e12
    create(node, "u")
    produce(node, updates(3000), "u")
    await_compacted(node, "u")


def test_a_worker_that_is_killed_is_replaced(node):
    create(node)
    produce(node, updates(3000))
    await_compacted(node)
    cleaner = cleaner_of(node)
    worker = cleaner._workers[0]
    if worker.is_running:
        worker._process.kill()
        worker._process.wait()
    produce(node, updates(3000, 3000))
    await_compacted(node)
    assert {key: value for _, key, value in consume(node)} == dict(updates(6000)[-KEYS:])


def test_a_worker_that_the_system_has_no_room_for_comes_later(node, monkeypatch):
    begun, start = [], cleaner_process._start

    def refuse():
        begun.append(time.monotonic())
        if len(begun) < 5:
            raise BlockingIOError("Resource temporarily unavailable")
        return start()

    monkeypatch.setattr(cleaner_process, "_start", refuse)
    create(node)
    produce(node, updates(3000))
    await_compacted(node)
    assert cleaner_of(node).machine.uncleanable == {}
    pauses = [after - before for before, after in pairwise(begun[:5])]
    assert min(pauses) > int(OFTEN["log.cleaner.backoff.ms"]) / 2000, "it was tried at once"


@pytest.mark.own_faults
def test_compaction_goes_on_after_a_fault_that_nobody_thought_of(node, monkeypatch, caplog):
    faults, look = [ValueError("a bug")], cleanable.dirt

    def fail(*about, **options):
        if faults:
            raise faults.pop()
        return look(*about, **options)

    monkeypatch.setattr(cleanable, "dirt", fail)
    create(node)
    produce(node, updates(3000))
    await_compacted(node)
    assert caplog.messages.count("compaction failed") == 1


def test_a_disk_that_refuses_the_swap_takes_its_folder_offline(node, monkeypatch):
    def refuse(*_arguments):
        raise StorageFault("the disk refused")

    monkeypatch.setattr("anabranch.core.log.segment_swap.prepare", refuse)
    create(node)
    produce(node, updates(3000))
    partitions = node.node.broker.broker.partitions
    until(lambda: partitions.offline_folders, "the folder is still served")
