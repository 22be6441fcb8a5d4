"""Clients that nobody here wrote produce to a real node and read it back (R5)."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyPartition
from node_kit import ThreadNode

SECONDS = 20


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    running = ThreadNode(tmp_path_factory.mktemp("node")).start()
    yield running
    running.stop()


@pytest.fixture
def topic(node, request):
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(SECONDS)
    return name


def produced(node, topic, records, **settings):
    """Produce (key, value, headers, timestamp); returns what was acknowledged."""
    answers = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5, **settings})
    for key, value, headers, timestamp in records:
        producer.produce(
            topic, value, key, partition=0, headers=headers, timestamp=timestamp,
            on_delivery=lambda fault, message: answers.append((fault, message)),
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0
    assert [fault for fault, _ in answers if fault] == []
    return [message for _, message in answers]


def consumed(node, topic, count, offset=0):
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False,
         "fetch.message.max.bytes": 4 << 20, "check.crcs": True},
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), timeout=SECONDS)
        assert batch, f"{len(found)} of {count} records came"
        assert [each.error() for each in batch if each.error()] == []
        found += batch
    consumer.close()
    return found


RECORDS = [
    (b"k1", b"v1", [("h", b"1"), ("h", None)], 1_700_000_000_123),
    (None, b"no key", None, 1_700_000_000_124),
    (b"no value", None, [], 1_700_000_000_125),
    (b"", b"", None, 1_700_000_000_126),
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [1, -1])
def test_confluent_reads_what_it_wrote(node, topic, acks, codec):
    records = RECORDS * 50
    produced(node, topic, records, acks=acks, **{"compression.type": codec})
    found = consumed(node, topic, len(records))
    assert [each.offset() for each in found] == list(range(len(records)))
    for message, (key, value, headers, timestamp) in zip(found, records):
        assert (message.key(), message.value()) == (key, value)
        assert (message.headers() or []) == (headers or [])
        assert message.timestamp()[1] == timestamp


def test_acks_0_is_not_answered_and_not_lost(node, topic):
    produced(node, topic, RECORDS * 10, acks=0)
    assert len(consumed(node, topic, 40)) == 40


def test_an_idempotent_producer(node, topic):
    produced(node, topic, RECORDS * 500, **{"enable.idempotence": True, "batch.num.messages": 10})
    assert len(consumed(node, topic, 2000)) == 2000


def test_a_record_of_a_megabyte(node, topic):
    size = 999_000  # librdkafka counts its overhead into a megabyte
    produced(node, topic, [(None, bytes([n]) * size, None, 0) for n in range(5)])
    found = consumed(node, topic, 5)
    assert [(each.value()[0], len(each.value())) for each in found] == [(n, size) for n in range(5)]


def test_a_record_that_is_too_large_is_refused(node, topic):
    faults = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.max.bytes": 9_000_000})
    producer.produce(topic, b"x" * 3_000_000, on_delivery=lambda fault, _: faults.append(fault))
    producer.flush(SECONDS)
    assert faults[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_seeking_by_offset_and_by_time(node, topic):
    produced(node, topic, [(None, b"%d" % n, None, 1000 + n * 10) for n in range(100)])
    assert consumed(node, topic, 1, offset=42)[0].value() == b"42"
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1495)], SECONDS)
    assert found.offset == 50
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (0, 100)
    consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_what_it_wrote(node, topic, codec):
    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap, compression_type=codec, acks="all", linger_ms=5
    )
    sent = [
        producer.send(topic, b"v%d" % n, key=b"k", partition=0, headers=[("h", b"x")])
        for n in range(200)
    ]
    producer.flush(SECONDS)
    assert sorted(each.get(SECONDS).offset for each in sent) == list(range(200))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, consumer_timeout_ms=10_000)
    consumer.assign([PyPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(200)]
    assert [each.value for each in found] == [b"v%d" % n for n in range(200)]
    assert found[0].headers in ([("h", b"x")], (("h", b"x"),))
    consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_reads_what_it_wrote(node, topic, codec):
    producer = AIOKafkaProducer(
        bootstrap_servers=node.bootstrap, compression_type=codec, enable_idempotence=True
    )
    await producer.start()
    sent = [await producer.send(topic, b"v%d" % n, key=b"k", partition=1) for n in range(200)]
    assert [(await each).offset for each in sent] == list(range(200))
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap)
    await consumer.start()
    consumer.assign([AioPartition(topic, 1)])
    await consumer.seek_to_beginning()
    assert [(await consumer.getone()).value for _ in range(200)] == [b"v%d" % n for n in range(200)]
    await consumer.stop()


def test_a_topic_comes_into_being_when_it_is_written_to(node):
    produced(node, "made-by-itself", [(None, b"x", None, 0)])
    assert consumed(node, "made-by-itself", 1)[0].value() == b"x"
