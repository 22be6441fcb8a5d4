"""What one client does to one server in one round, and what it measured.

The client is confluent-kafka in this process, the same for both servers. Values are incompressible:
slices of one random pool.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from servers import Server

POOL = os.urandom(8 * 1024 * 1024)
WAIT_SECONDS = 300.0
CLIENT: dict[str, Any] = {
    "log_level": 0,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "socket.nagle.disable": True,
}


@dataclass
class Sample:
    """One round on one server: metric name -> figure, in the unit that the name ends with."""

    figures: dict[str, float] = field(default_factory=dict)


def values_of(size_bytes: int, count: int = 4096) -> list[bytes]:
    """Incompressible values of one size, cut from the pool at random places."""
    places = random.Random(7)
    starts = (places.randrange(len(POOL) - size_bytes) for _ in range(count))
    return [POOL[start : start + size_bytes] for start in starts]


def client_of(server: Server) -> dict[str, Any]:
    """Properties of each client of the server."""
    return {"bootstrap.servers": server.bootstrap, **CLIENT, **server.client}


def admin_of(server: Server) -> AdminClient:
    """An admin client of the server."""
    return AdminClient(client_of(server))


def create(server: Server, topics: Sequence[str], partitions: int = 1) -> None:
    """Create topics in one request and wait until every partition has a leader."""
    admin = admin_of(server)
    wanted = [NewTopic(topic, partitions, server.replicas) for topic in topics]
    for future in admin.create_topics(wanted, request_timeout=WAIT_SECONDS).values():
        future.result(WAIT_SECONDS)
    await_leaders(admin, topics, partitions)


def await_leaders(admin: AdminClient, topics: Sequence[str], partitions: int) -> None:
    """Wait until the metadata names a leader for every partition of every topic."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while time.perf_counter() < deadline:
        known = admin.list_topics(timeout=30).topics
        led = sum(
            each.leader >= 0
            for topic in topics
            if topic in known
            for each in known[topic].partitions.values()
        )
        if led == len(topics) * partitions:
            return
        time.sleep(0.005)
    raise SystemExit("partitions without a leader")


def ends_of(server: Server, topic: str, partitions: int) -> int:
    """The records of a topic that was written without transactions: the sum of its end offsets."""
    consumer = Consumer({"group.id": "ends", **client_of(server)})
    try:
        places = (TopicPartition(topic, index) for index in range(partitions))
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    finally:
        consumer.close()


def drop(server: Server, topic: str) -> None:
    """Delete a topic so that rounds do not fill the disk."""
    admin = admin_of(server)
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)


class Failures:
    """Counts records that were refused; librdkafka reports nothing else."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: KafkaError | None, _message: object) -> None:
        self.count += error is not None


def send(
    server: Server,
    topic: str,
    *,
    value_bytes: int,
    total_bytes: int,
    batch_bytes: int | None,
    partitions: int = 1,
) -> float:
    """Produce `total_bytes` of values, to all partitions in turn; returns the seconds to the last
    acknowledgement. Without `batch_bytes` the client batches by its own defaults.
    """
    failures = Failures()
    batches = {"batch.size": batch_bytes, "batch.num.messages": 1_000_000} if batch_bytes else {}
    producer = Producer(
        {
            "acks": server.acks,
            "linger.ms": 5,
            **batches,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 524_288,
            "delivery.report.only.error": True,
            "on_delivery": failures,
            **client_of(server),
        }
    )
    values = values_of(value_bytes)
    count = total_bytes // value_bytes
    producer.list_topics(topic, timeout=30)
    begin = time.perf_counter()
    produce = producer.produce
    for number in range(count):
        while True:
            try:
                produce(topic, values[number & 4095], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(WAIT_SECONDS)
    seconds = time.perf_counter() - begin
    if left or failures.count:
        raise SystemExit(f"{server.name}: {left} unsent, {failures.count} refused")
    return seconds


def produce(
    server: Server,
    *,
    value_bytes: int,
    total_bytes: int,
    batch_bytes: int | None,
    partitions: int = 1,
) -> Sample:
    """MB/s, CPU seconds per GB of values, and peak memory while one topic is written."""
    topic = f"produce-{time.monotonic_ns()}"
    create(server, [topic], partitions)
    before = server.cpu_seconds()
    with server.watched() as peak:
        seconds = send(
            server,
            topic,
            value_bytes=value_bytes,
            total_bytes=total_bytes,
            batch_bytes=batch_bytes,
            partitions=partitions,
        )
    cpu = server.cpu_seconds() - before
    drop(server, topic)
    return Sample(
        {
            "MB/s": total_bytes / seconds / 1e6,
            "CPU s/GB": cpu / (total_bytes / 1e9),
            "peak MB": peak[0] / 1e6,
        }
    )


def consume(server: Server, topic: str, *, value_bytes: int, total_bytes: int) -> Sample:
    """MB/s and CPU seconds per GB of reading a topic that lies in the page cache."""
    consumer = Consumer(
        {
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 1,
            **client_of(server),
        }
    )
    wanted, have = total_bytes // value_bytes, 0
    before, begin = server.cpu_seconds(), time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while have < wanted:
        messages = consumer.consume(10_000, timeout=10)
        if not messages:
            raise SystemExit(f"{server.name}: {have} of {wanted} records came")
        have += len(messages)
    seconds = time.perf_counter() - begin
    cpu = server.cpu_seconds() - before
    consumer.close()
    last = messages[-1]
    if last.error() or last.offset() != wanted - 1:
        raise SystemExit(f"{server.name}: the last record is {last.offset()}: {last.error()}")
    return Sample({"MB/s": total_bytes / seconds / 1e6, "CPU s/GB": cpu / (total_bytes / 1e9)})


def one_at_a_time(server: Server, *, value_bytes: int, count: int) -> Sample:
    """Milliseconds from handing over one record to its acknowledgement, nothing else under way."""
    topic = f"single-{time.monotonic_ns()}"
    create(server, [topic])
    producer = Producer({"acks": server.acks, "linger.ms": 0, **client_of(server)})
    values = values_of(value_bytes)
    taken: list[float] = []
    failures = Failures()
    for number in range(count + 100):
        begin = time.perf_counter()
        producer.produce(topic, values[number & 4095], partition=0, on_delivery=failures)
        while not producer.poll(1.0):
            pass
        taken.append((time.perf_counter() - begin) * 1000)
    if failures.count:
        raise SystemExit(f"{server.name}: {failures.count} records refused")
    drop(server, topic)
    taken = sorted(taken[100:])
    at = {"p50 ms": 0.5, "p99 ms": 0.99, "p99.9 ms": 0.999}
    return Sample({name: taken[int(share * (count - 1))] for name, share in at.items()})


def acknowledge_one(server: Server, topic: str, partition: int = 0) -> None:
    """Produce one record and wait for its acknowledgement, with a client of its own."""
    failures = Failures()
    producer = Producer({"acks": server.acks, "linger.ms": 0, **client_of(server)})
    producer.produce(topic, b"one", partition=partition, on_delivery=failures)
    if producer.flush(WAIT_SECONDS) or failures.count:
        raise SystemExit(f"{server.name}: the record was not acknowledged")


def create_first(server: Server, topic: str) -> None:
    """Create a topic on a server that may not be ready yet, again until it works."""
    deadline = time.perf_counter() + WAIT_SECONDS
    admin = admin_of(server)
    while True:
        try:
            admin.create_topics([NewTopic(topic, 1, server.replicas)])[topic].result(10)
            return
        except KafkaException as refusal:
            if refusal.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.perf_counter() > deadline:
                raise SystemExit(f"{server.name}: {refusal}") from None
            time.sleep(0.005)


def cold_start(server: Server) -> Sample:
    """From exec in a new folder to the first acknowledged record of a topic just created; and the
    resident memory at that moment."""
    begin = time.perf_counter()
    server.start()
    create_first(server, "first")
    acknowledge_one(server, "first")
    seconds = time.perf_counter() - begin
    memory = server.resident_bytes() / 1e6
    return Sample({"seconds": seconds, "CPU s": server.cpu_seconds(), "MB": memory})


def idle(server: Server, *, settle_seconds: float) -> Sample:
    """Memory of a server that has just started, and its CPU share while nobody asks anything."""
    server.start()
    create_first(server, "first")
    acknowledge_one(server, "first")
    time.sleep(settle_seconds)
    before, begin = server.cpu_seconds(), time.perf_counter()
    time.sleep(settle_seconds)
    share = (server.cpu_seconds() - before) / (time.perf_counter() - begin)
    return Sample({"MB": server.resident_bytes() / 1e6, "CPU %": share * 100})


def many_topics(server: Server, *, topics: int, partitions: int) -> Sample:
    """Seconds until all topics of one request are led; and until a record lies in the last one."""
    server.start()
    create_first(server, "first")
    acknowledge_one(server, "first")
    names = [f"topic-{number:04d}" for number in range(topics)]
    begin = time.perf_counter()
    create(server, names, partitions)
    led = time.perf_counter() - begin
    acknowledge_one(server, names[-1], partitions - 1)
    return Sample({"seconds": led, "s to a record in the last": time.perf_counter() - begin})


def restart(server: Server, *, topics: int, partitions: int) -> Sample:
    """From exec after a SIGKILL, with every partition written to, to the first acknowledgement."""
    server.start()
    create_first(server, "first")
    names = [f"topic-{number:04d}" for number in range(topics)]
    create(server, names, partitions)
    fill(server, names, partitions)
    server.kill()
    begin = time.perf_counter()
    server.start()
    acknowledge_one(server, names[-1], partitions - 1)
    return Sample({"seconds": time.perf_counter() - begin, "CPU s": server.cpu_seconds()})


def fill(server: Server, topics: Sequence[str], partitions: int) -> None:
    """One record of 100 bytes into every partition."""
    failures = Failures()
    producer = Producer({"acks": 1, **client_of(server)})
    (value,) = values_of(100, 1)
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition, on_delivery=failures)
        producer.poll(0)
    if producer.flush(WAIT_SECONDS) or failures.count:
        raise SystemExit(f"{server.name}: {failures.count} partitions took no record")
