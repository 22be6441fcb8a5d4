"""Transactions of clients that others wrote: all of it or nothing, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from anabranch.testing import LocalCluster

SECONDS = 30


@pytest.fixture(scope="module")
def cluster():
    """Three brokers that all tests of the module share."""
    settings = {"transaction.state.log.num.partitions": 2, "broker.session.timeout.ms": 1500,
                "broker.heartbeat.interval.ms": 300}  # fmt: skip
    with LocalCluster(brokers=3, config=settings) as running:
        yield running


@pytest.fixture
def topic(cluster, request):
    """A topic of two partitions of the test's own."""
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name, partitions=2)
    return name


def producer_of(cluster, name, **more):
    found = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "log_level": 0,
            **more,
        }
    )
    found.init_transactions(SECONDS)
    return found


def read(cluster, topic, *, committed=True):
    """All values of a topic, as one kind of reader sees them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in (0, 1)])
    values, ended = [], set()
    while ended != {0, 1}:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
            ended.discard(message.partition())
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return sorted(values)


def with_confluent(cluster, topic):
    producer = producer_of(cluster, topic)
    for number, ends in enumerate((True, False, True)):
        producer.begin_transaction()
        for index in (0, 1):
            producer.produce(topic, b"%d" % number, partition=index)
        producer.flush()
        (producer.commit_transaction if ends else producer.abort_transaction)(SECONDS)


def with_kafka_python(cluster, topic):
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic
    )
    producer.init_transactions()
    for number, ends in enumerate((True, False, True)):
        producer.begin_transaction()
        for index in (0, 1):
            producer.send(topic, b"%d" % number, partition=index).get(SECONDS)
        (producer.commit_transaction if ends else producer.abort_transaction)()
    producer.close()


def with_aiokafka(cluster, topic):
    async def run():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic
        )
        await producer.start()
        for number, ends in enumerate((True, False, True)):
            await producer.begin_transaction()
            for index in (0, 1):
                await producer.send_and_wait(topic, b"%d" % number, partition=index)
            await (producer.commit_transaction if ends else producer.abort_transaction)()
        await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("write", [with_confluent, with_kafka_python, with_aiokafka])
def test_readers_see_what_was_committed(cluster, topic, write):
    write(cluster, topic)
    assert read(cluster, topic) == [b"0", b"0", b"2", b"2"]
    assert read(cluster, topic, committed=False) == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_what_was_read_and_written_is_committed_together(cluster, topic):
    """Consume, transform, produce: an aborted round leaves neither records nor offsets."""
    cluster.create_topic(f"{topic}-out", partitions=2)
    source = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(4):
        source.produce(topic, b"%d" % number, partition=0)
    source.flush()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    producer = producer_of(cluster, topic)
    for ends in (True, False):
        messages = [consumer.poll(SECONDS) for _ in range(2)]
        producer.begin_transaction()
        for each in messages:
            producer.produce(f"{topic}-out", each.value() * 2, partition=0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
        (producer.commit_transaction if ends else producer.abort_transaction)(SECONDS)
        [committed] = consumer.committed([TopicPartition(topic, 0)], SECONDS)
        assert committed.offset == 2
    consumer.close()
    assert read(cluster, f"{topic}-out") == [b"00", b"11"]


def test_kafka_python_commits_offsets_in_a_transaction(cluster, topic):
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic
    )
    producer.init_transactions()
    place = kafka.TopicPartition(topic, 0)
    group = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic)
    for offset, ends in ((5, True), (9, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, topic)
        (producer.commit_transaction if ends else producer.abort_transaction)()
        assert group.committed(place) == 5
    group.close()
    producer.close()


def test_a_producer_that_was_replaced_is_fenced(cluster, topic):
    old = producer_of(cluster, topic)
    old.begin_transaction()
    old.produce(topic, b"old", partition=0)
    old.flush()
    new = producer_of(cluster, topic)
    new.begin_transaction()
    new.produce(topic, b"new", partition=0)
    new.commit_transaction(SECONDS)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit_transaction(SECONDS)
    assert fenced.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    assert read(cluster, topic) == [b"new"]


def test_a_transaction_outlives_its_leader(cluster, topic):
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    producer.produce(topic, b"before", partition=0)
    producer.flush()
    with cluster.kill(cluster.leader(topic)):
        producer.produce(topic, b"after", partition=0)
        producer.produce(topic, b"other", partition=1)
        assert read(cluster, topic) == []
        producer.commit_transaction(SECONDS)
        assert read(cluster, topic) == [b"after", b"before", b"other"]
    cluster.wait_in_sync()
    assert read(cluster, topic) == [b"after", b"before", b"other"]


def test_a_transaction_outlives_the_crash_of_all(cluster, topic):
    aborted, producer = producer_of(cluster, f"{topic}-a"), producer_of(cluster, topic)
    for each in (aborted, producer):
        each.begin_transaction()
        each.produce(topic, b"before", partition=0)
        each.flush()
    with cluster.crash():
        pass
    assert read(cluster, topic) == []
    producer.produce(topic, b"after", partition=0)
    producer.commit_transaction(SECONDS)
    aborted.abort_transaction(SECONDS)
    assert read(cluster, topic) == [b"after", b"before"]
    with cluster.crash():
        pass
    seen = read(cluster, topic)
    while seen != [b"after", b"before"]:  # until the followers have told what they have
        assert seen == [], "a transaction is read whole, or not at all"
        seen = read(cluster, topic)
