"""R5: what clients nobody here wrote produce, a real node acknowledges, keeps and gives back."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from tests.clients.adapters import CODECS, SECONDS, Refused, Sent

MESSAGE_TOO_LARGE = 10

SHAPES = [
    Sent(b"key", b"value", (("h", b"1"), ("h", b"2"), ("empty", b"")), 1_700_000_000_123),
    Sent(None, b"no key", (), 1_700_000_000_124),
    Sent(b"no value", None, (), 1_700_000_000_125),
    Sent(b"", b"", (), 1_700_000_000_126),
    Sent(b"\x00\xff", b"again " * 200, (), 1_700_000_000_120),
]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_brings_back_every_shape_of_record(client, new_topic, codec):
    topic, records = new_topic(), SHAPES * 20
    answers = client.produce(topic, records, codec=codec)
    assert [offset for offset, _ in answers] == list(range(len(records)))
    seen = client.consume(topic, len(records))
    assert [each.offset for each in seen] == list(range(len(records)))
    assert [each.record for each in seen] == records
    assert {each.timestamp_type for each in seen} == {0}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_r5_acks(client, new_topic, acks):
    topic = new_topic()
    client.produce(topic, SHAPES, acks=acks)
    assert [each.record for each in client.consume(topic, len(SHAPES))] == SHAPES


def test_an_idempotent_producer_is_in_order_and_once(client, new_topic):
    topic = new_topic()
    records = [Sent(b"k", b"%d" % number) for number in range(1000)]
    answers = client.produce(topic, records, idempotent=True)
    assert [offset for offset, _ in answers] == list(range(1000))
    values = [each.record.value for each in client.consume(topic, 1000)]
    assert values == [each.value for each in records]
    assert client.ends(topic) == (0, 1000)


def test_log_append_time_is_the_nodes(client, new_topic):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answers = client.produce(topic, SHAPES, codec="lz4")
    after = int(time.time() * 1000)
    seen = client.consume(topic, len(SHAPES))
    assert {each.timestamp_type for each in seen} == {1}
    times = {each.record.timestamp for each in seen}
    assert all(before <= each <= after for each in times)
    assert {timestamp for _, timestamp in answers} == times


def test_records_of_a_megabyte(client, new_topic):
    topic = new_topic()
    records = [Sent(None, bytes([number]) * 1_000_000, (), 1) for number in range(4)]
    client.produce(topic, records)
    assert [each.record for each in client.consume(topic, 4)] == records


def test_a_record_over_message_max_bytes_is_refused_and_others_pass(client, new_topic):
    topic = new_topic()
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Sent(None, b"x" * 1_048_600)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Sent(None, b"small")])
    assert client.ends(topic) == (0, 1)


def test_a_topics_own_limit_goes_before_the_nodes(client, new_topic):
    narrow, wide = new_topic(max_message_bytes="1000"), new_topic(max_message_bytes="4000000")
    with pytest.raises(Refused) as refused:
        client.produce(narrow, [Sent(None, b"x" * 2000)])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(wide, [Sent(None, b"x" * 3_000_000)])
    assert len(client.consume(wide, 1)[0].record.value) == 3_000_000


@pytest.mark.parametrize("acks", [1, -1])
def test_r5_min_insync_replicas_asks_for_no_more_replicas_than_there_are(node, new_topic, acks):
    """Measured on Apache Kafka 4.1: one replica, min.insync.replicas=2, acks=all: acknowledged."""
    assert fault_of(node, new_topic(min_insync_replicas="2"), acks=acks) is None


def fault_of(node, topic, **settings):
    """The fault of one record's delivery, None when it was acknowledged."""
    answers = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "message.timeout.ms": 1500,
            "topic.metadata.propagation.max.ms": 100,
            "log_level": 0,
            **settings,
        }
    )
    producer.produce(topic, b"x", on_delivery=lambda fault, _: answers.append(fault))
    assert producer.flush(SECONDS) == 0
    return answers[0]


def test_seeking_by_offset_and_by_time_and_to_the_ends(client, new_topic):
    topic = new_topic()
    client.produce(topic, [Sent(None, b"%d" % n, (), 1000 + n * 10) for n in range(100)])
    assert client.consume(topic, 1, offset=42)[0].record.value == b"42"
    assert client.offset_at_time(topic, 0) == 0
    assert client.offset_at_time(topic, 1490) == 49
    assert client.offset_at_time(topic, 1491) == 50
    assert client.offset_at_time(topic, 1991) is None
    assert client.ends(topic) == (0, 100)


def test_a_consumer_at_the_end_sees_what_comes_next(node, new_topic):
    topic = new_topic()
    fault_of(node, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "none",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
    end = consumer.poll(SECONDS)
    assert end.error().code() == KafkaError._PARTITION_EOF
    assert end.offset() == 1
    fault_of(node, topic)
    assert consumer.poll(SECONDS).offset() == 1
    consumer.close()


def test_an_offset_out_of_range_is_said(node, new_topic):
    topic = new_topic()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "none", "auto.offset.reset": "error",
         "enable.auto.commit": False, "log_level": 0}
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 77)])
    assert consumer.poll(SECONDS).error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_an_unknown_topic_is_made_when_it_is_written_to(client, request):
    topic = f"made-by-{client.name}"
    client.produce(topic, [Sent(None, b"x", (), 1)])
    assert client.consume(topic, 1)[0].record.value == b"x"


def test_an_unknown_topic_stays_unknown_without_auto_creation(start):
    running = start(**{"auto.create.topics.enable": "false"}).ready()
    fault = fault_of(running, "nowhere")
    assert fault.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
