"""A producer of whole batches on real brokers that are killed, and on topics that are not there."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from anabranch.client.cluster import Cluster
from anabranch.client.lanes import LaneSettings, OutgoingBatch, ProduceFailed
from anabranch.client.producer import Producer, ProducerSettings
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch
from anabranch.testing import LocalCluster

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster():
    settings = {"auto.create.topics.enable": False, "message.max.bytes": 20_000}
    with LocalCluster(brokers=3, config=settings) as running:
        yield running


def outgoing(topic, partition, values):
    now_ms = int(time.time() * 1000)  # what is older than retention allows may go at any moment
    records = [Record(at, now_ms, None, value) for at, value in enumerate(values)]
    return OutgoingBatch(topic, partition, build_batch(records))


def read_all(cluster, topic, count):
    """Every value of every partition, in the order of offsets."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    values = {each: [] for each in range(PARTITIONS)}
    found = 0
    while found < count:
        message = consumer.poll(20)
        assert message is not None, f"{found} of {count} records came"
        assert message.error() is None
        values[message.partition()].append(message.value())
        found += 1
    end = sum(consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in values)
    consumer.close()
    assert end == count
    return values


async def test_every_record_is_written_once_while_a_leader_is_killed_and_comes_back(cluster):
    cluster.create_topic("moving", partitions=PARTITIONS, config={"min.insync.replicas": 2})
    sent = {each: [] for each in range(PARTITIONS)}
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client, ProducerSettings(buffer_bytes=50_000))
        assert await producer.partition_count("moving") == PARTITIONS
        victim = (await client.leaders("moving"))[0]
        killing = None
        for number in range(150):
            if number == 40:
                killing = asyncio.create_task(asyncio.to_thread(cluster.kill, victim))
            if number == 110:
                await killing
                await asyncio.to_thread(cluster.start_broker, victim)
            batches = []
            for partition in sent:
                values = [b"%d-%d-%d" % (partition, number, each) for each in range(20)]
                sent[partition] += values
                batches.append(outgoing("moving", partition, values))
            await producer.send(batches)
        await producer.flush()
        await producer.close()
    assert read_all(cluster, "moving", 150 * 20 * PARTITIONS) == sent


async def test_batches_over_the_topics_limit_are_cut_and_the_rest_follows(cluster):
    cluster.create_topic("narrow", partitions=PARTITIONS, config={"max.message.bytes": 3000})
    values = [b"%05d" % each * 100 for each in range(20)]
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client)
        assert await producer.partition_count("narrow") == PARTITIONS
        await producer.send([outgoing("narrow", 0, values), outgoing("narrow", 0, [b"after"])])
        await producer.flush()
        await producer.close()
    assert read_all(cluster, "narrow", 21)[0] == [*values, b"after"]


async def test_a_topic_that_does_not_come_is_named_with_the_time_that_was_waited(cluster):
    settings = ProducerSettings(max_block_ms=200)
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client, settings)
        with pytest.raises(ProduceFailed, match=r"Topic 'absent' .* max.block.ms \(200 ms\)"):
            await producer.partition_count("absent")
        with pytest.raises(ApiError) as refusal:
            await producer.partition_count("no/topic")
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_first_failure_is_raised_from_then_on(cluster):
    cluster.create_topic("small", config={"max.message.bytes": 1000})
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client)
        await producer.partition_count("small")
        await producer.send([outgoing("small", 0, [b"x" * 2000])])
        with pytest.raises(ProduceFailed, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        with pytest.raises(ProduceFailed, match="MESSAGE_TOO_LARGE"):
            await producer.send([outgoing("small", 0, [b"x"])])
        await producer.close()


async def test_without_idempotence_a_batch_names_no_producer(cluster):
    cluster.create_topic("plain", partitions=PARTITIONS)
    settings = ProducerSettings(LaneSettings(acks=1, is_idempotent=False))
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client, settings)
        await producer.partition_count("plain")
        batch = outgoing("plain", 1, [b"x"])
        await producer.send([batch])
        await producer.flush()
        await producer.close()
    assert read_header(batch.batch).producer_id == -1
    assert read_all(cluster, "plain", 1)[1] == [b"x"]


async def test_a_send_waits_until_there_is_room(cluster):
    cluster.create_topic("full", partitions=PARTITIONS)
    async with Cluster(cluster.bootstrap_servers) as client:
        producer = await Producer.open(client, ProducerSettings(buffer_bytes=1000))
        await producer.partition_count("full")
        await producer.send([outgoing("full", 0, [b"x" * 2000])])
        second = asyncio.create_task(producer.send([outgoing("full", 1, [b"y"])]))
        await asyncio.sleep(0)
        assert not second.done()
        await producer.flush()
        await second
        await producer.flush()
        await producer.close()
    assert read_all(cluster, "full", 2)[1] == [b"y"]
