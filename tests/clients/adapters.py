"""Three clients behind two verbs, so that one test holds the node to all of them.

`produce` returns (offset, timestamp) of every record in the order of sending, or raises Refused;
`consume` returns `Seen` records. Nothing here hides an answer: a client's error becomes Refused with
Kafka's number and name.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioError
from kafka.errors import KafkaError as PythonError

SECONDS = 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as an application hands it over; timestamp None: the client's clock."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None


class Seen(NamedTuple):
    """A record as an application reads it. timestamp_type: 0 CreateTime, 1 LogAppendTime."""

    offset: int
    timestamp_type: int
    record: Sent


class Refused(Exception):
    """The node (or the client, for what it knows by itself) said no."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def produce(self, topic, records, *, partition=0, acks=-1, codec="none", idempotent=False):
        answers = []
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "acks": acks, "compression.type": codec,
             "enable.idempotence": idempotent, "linger.ms": 5, "message.max.bytes": 8_000_000,
             "message.timeout.ms": SECONDS * 500, "log_level": 0}
        )  # fmt: skip
        for each in records:
            time = {} if each.timestamp is None else {"timestamp": each.timestamp}
            producer.produce(
                topic, each.value, each.key, partition, headers=list(each.headers),
                on_delivery=lambda fault, message: answers.append((fault, message)), **time,
            )  # fmt: skip
        assert producer.flush(SECONDS) == 0
        for fault, _ in answers:
            if fault is not None:
                raise Refused(fault.code(), fault.str())
        return [(message.offset(), message.timestamp()[1]) for _, message in answers]

    def consume(self, topic, count, *, partition=0, offset=0):
        consumer = self.consumer()
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
        found = []
        while len(found) < count:
            came = consumer.consume(count - len(found), timeout=SECONDS)
            assert came, f"{len(found)} of {count} records came"
            assert [each.error() for each in came if each.error()] == []
            found += came
        consumer.close()
        return [
            Seen(
                each.offset(),
                each.timestamp()[0] - 1,
                Sent(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]),
            )
            for each in found
        ]

    def consumer(self):
        return confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "none", "check.crcs": True,
             "enable.auto.commit": False, "log_level": 0}
        )  # fmt: skip

    def offset_at_time(self, topic, timestamp):
        consumer = self.consumer()
        at = confluent_kafka.TopicPartition(topic, 0, timestamp)
        (found,) = consumer.offsets_for_times([at], SECONDS)
        consumer.close()
        return None if found.offset < 0 else found.offset

    def ends(self, topic):
        consumer = self.consumer()
        found = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), SECONDS)
        consumer.close()
        return found


class Python:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def produce(self, topic, records, *, partition=0, acks=-1, codec="none", idempotent=False):
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all" if acks == -1 else acks, linger_ms=5,
            compression_type=None if codec == "none" else codec, enable_idempotence=idempotent,
            max_request_size=8_000_000, delivery_timeout_ms=SECONDS * 500,
            request_timeout_ms=SECONDS * 250, max_block_ms=SECONDS * 500,
        )  # fmt: skip
        try:
            sent = [
                producer.send(
                    topic, each.value, each.key, list(each.headers), partition, each.timestamp
                )
                for each in records
            ]
            producer.flush(SECONDS)
            return [(each.get(SECONDS).offset, each.get(SECONDS).timestamp) for each in sent]
        except PythonError as fault:
            raise Refused(getattr(fault, "errno", -1), str(fault)) from fault
        finally:
            producer.close(SECONDS)

    def consume(self, topic, count, *, partition=0, offset=0):
        consumer = self.consumer()
        at = kafka.TopicPartition(topic, partition)
        consumer.assign([at])
        consumer.seek(at, offset)
        found = [each for _, each in zip(range(count), consumer)]
        consumer.close()
        assert len(found) == count, f"{len(found)} of {count} records came"
        return [
            Seen(
                each.offset,
                each.timestamp_type,
                Sent(each.key, each.value, tuple(each.headers), each.timestamp),
            )
            for each in found
        ]

    def consumer(self):
        return kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, consumer_timeout_ms=SECONDS * 1000
        )

    def offset_at_time(self, topic, timestamp):
        consumer = self.consumer()
        at = kafka.TopicPartition(topic, 0)
        found = consumer.offsets_for_times({at: timestamp})[at]
        consumer.close()
        return None if found is None else found.offset

    def ends(self, topic):
        consumer = self.consumer()
        at = kafka.TopicPartition(topic, 0)
        found = consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
        consumer.close()
        return found


class Aio:
    """aiokafka, each call in an event loop of its own."""

    name = "aiokafka"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def produce(self, topic, records, **settings):
        try:
            return asyncio.run(asyncio.wait_for(self._produce(topic, records, **settings), SECONDS))
        except AioError as fault:
            raise Refused(getattr(fault, "errno", -1), str(fault)) from fault

    async def _produce(
        self, topic, records, *, partition=0, acks=-1, codec="none", idempotent=False
    ):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all" if acks == -1 else acks, linger_ms=5,
            compression_type=None if codec == "none" else codec, enable_idempotence=idempotent,
            max_request_size=8_000_000, request_timeout_ms=SECONDS * 250,
        )  # fmt: skip
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic, each.value, each.key, partition, each.timestamp, list(each.headers)
                )
                for each in records
            ]
            answers = [await each for each in sent]
        finally:
            await producer.stop()
        return [(each.offset, each.timestamp) if each else (-1, -1) for each in answers]

    def _with_consumer(self, act):
        async def run():
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap, check_crcs=True)
            await consumer.start()
            try:
                return await act(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(asyncio.wait_for(run(), SECONDS))

    def consume(self, topic, count, *, partition=0, offset=0):
        async def act(consumer):
            at = aiokafka.TopicPartition(topic, partition)
            consumer.assign([at])
            consumer.seek(at, offset)
            return [await consumer.getone() for _ in range(count)]

        return [
            Seen(
                each.offset,
                each.timestamp_type,
                Sent(each.key, each.value, tuple(each.headers), each.timestamp),
            )
            for each in self._with_consumer(act)
        ]

    def offset_at_time(self, topic, timestamp):
        at = aiokafka.TopicPartition(topic, 0)

        async def act(consumer):
            return (await consumer.offsets_for_times({at: timestamp}))[at]

        found = self._with_consumer(act)
        return None if found is None else found.offset

    def ends(self, topic):
        at = aiokafka.TopicPartition(topic, 0)

        async def act(consumer):
            first = await consumer.beginning_offsets([at])
            return first[at], (await consumer.end_offsets([at]))[at]

        return self._with_consumer(act)


CLIENTS = (Confluent, Aio, Python)
