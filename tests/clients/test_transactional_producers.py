"""A client's transactions when their coordinator dies, and when the producer falls silent."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.core.coordination.internal_topics import java_hash
from anabranch.testing import LocalCluster

SECONDS = 30
PARTITIONS = 3
NAMES = (f"transactional-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster():
    config = {"transaction.state.log.num.partitions": 50}
    with LocalCluster(brokers=3, config=config) as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = next(NAMES)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(SECONDS)
    return name


@pytest.fixture
def producer(cluster):
    def begin(transactional_id, **config):
        settings = {name.replace("_", "."): value for name, value in config.items()}
        made = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                "log_level": 0,
                **settings,
            }
        )
        made.init_transactions(SECONDS)
        return made

    return begin


def write(producer, topic, values):
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)


def committed(cluster, topic):
    """What a reader of committed records finds, up to one `end` in each partition."""
    found, reader = (
        [],
        Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"reader-of-{topic}"}
        ),
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    ends = 0
    try:
        while ends < PARTITIONS:
            message = reader.poll(SECONDS)
            assert message is not None and message.error() is None, f"after {found}"
            if message.value() == b"end":
                ends += 1
            else:
                found.append(message.value())
    finally:
        reader.close()
    return found


def write_ends(producer, topic):
    producer.begin_transaction()
    write(producer, topic, [b"end"] * PARTITIONS)
    producer.commit_transaction(SECONDS)


def test_a_transaction_goes_on_when_its_coordinator_is_killed(cluster, topic, producer):
    writer = producer(f"{topic}-writer")
    values = []
    for number in range(3):
        writer.begin_transaction()
        values += [b"%d-%d" % (number, each) for each in range(9)]
        write(writer, topic, values[-9:])
        if number == 1:
            writer.flush(SECONDS)
            with cluster.kill(coordinator_of(cluster, f"{topic}-writer")):
                writer.commit_transaction(SECONDS)
        else:
            writer.commit_transaction(SECONDS)
    write_ends(writer, topic)
    assert sorted(committed(cluster, topic)) == sorted(values)


def coordinator_of(cluster, transactional_id):
    """The broker that leads the id's partition of `__transaction_state`."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics("__transaction_state", SECONDS).topics["__transaction_state"]
    index = java_hash(transactional_id) % len(partitions.partitions)
    return partitions.partitions[index].leader


def test_a_transaction_is_aborted_while_the_markers_of_another_are_written(
    cluster, topic, producer
):
    """The request to join waits for these, and the end that comes behind it waits for that one."""
    writer, values = producer(f"{topic}-writer"), []
    for number in range(30):
        writer.begin_transaction()
        values += [b"%d-%d" % (number, each) for each in range(PARTITIONS)]
        write(writer, topic, values[-PARTITIONS:])
        writer.commit_transaction(SECONDS)
        writer.begin_transaction()
        write(writer, topic, [b"aborted"] * PARTITIONS)
        writer.poll(0.001 * (number % 4))  # it asks for the partitions in the background
        writer.abort_transaction(SECONDS)
    write_ends(writer, topic)
    assert sorted(committed(cluster, topic)) == sorted(values)


def test_a_transaction_that_nobody_ends_holds_readers_back_until_its_timeout(
    cluster, topic, producer
):
    silent = producer(f"{topic}-silent", transaction_timeout_ms=1_000)
    silent.begin_transaction()
    write(silent, topic, [b"never committed"] * PARTITIONS)
    silent.flush(SECONDS)
    writer = producer(f"{topic}-writer")
    write_ends(writer, topic)
    assert committed(cluster, topic) == []
    with pytest.raises(KafkaException):
        silent.commit_transaction(SECONDS)
