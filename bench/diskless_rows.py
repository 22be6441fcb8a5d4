"""The rows of diskless topics: three brokers, objects in a folder, the order in SQL.

The same clients and workloads as elsewhere: on the diskless trio every topic is diskless
(`log.diskless.enable`), and the peer is Apache Kafka with three replicas, or this project's own
classic topics. What is written to the disk is counted after each round: objects, the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import slow_store
import workloads
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from row import MB, Row, less, more, own_less
from scale import scaled
from servers import Server
from trio import TRIOS, AnabranchOnPostgres, AnabranchTrio
from workloads import CLIENT, Sample

from anabranch.server.one_machine import OBJECTS, diskless_settings

CONSUMED_BYTES = 200 * MB
CONSUMED_TOPIC = "consumed-three"
ACROSS = 500
"""Records of which each is waited for at another broker."""


class DisklessTrio(AnabranchTrio):
    """Three combined nodes whose topics are diskless but for the internal ones."""

    replicas = -1

    def membership(self, controllers: Mapping[int, int]) -> dict[str, object]:
        """The common store, coordinator and objects."""
        shared = diskless_settings(str(self.folder))
        return {**super().membership(controllers), **shared, "log.diskless.enable": "true"}

    @property
    def objects(self) -> Path:
        """Where records lie."""
        return self.folder / OBJECTS


class DisklessOnPostgres(DisklessTrio, AnabranchOnPostgres):
    """The same with metadata and order in a PostgreSQL server on this machine."""

    def membership(self, controllers: Mapping[int, int]) -> dict[str, object]:
        """The coordinator is a database of the same server."""
        return {**super().membership(controllers), "diskless.coordinator.url": self.store_url()}


def stored_bytes(server: DisklessTrio) -> int:
    """Bytes in objects now."""
    sizes = 0
    for path in server.objects.rglob("*"):
        with suppress(FileNotFoundError):
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


def produced(server: Server) -> Sample:
    """As on classic topics; of a diskless one also what was written for each byte of values."""
    total_bytes = scaled(150 * MB)
    before = stored_bytes(server) if isinstance(server, DisklessTrio) else 0
    sample = workloads.produce(
        server, value_bytes=1000, total_bytes=total_bytes, batch_bytes=None, partitions=12
    )
    if isinstance(server, DisklessTrio):
        sample.figures["written over produced"] = (stored_bytes(server) - before) / total_bytes
    return sample


def across(server: DisklessTrio) -> Sample:
    """Milliseconds from an acknowledgement by one broker to the record at a reader of another."""
    topic = f"across-{time.monotonic_ns()}"
    workloads.create(server, [topic])
    first, second = server.nodes[1].bootstrap, server.nodes[2].bootstrap
    producer = Producer({"bootstrap.servers": first, "linger.ms": 0, **CLIENT})
    consumer = Consumer({"bootstrap.servers": second, "group.id": "across", **CLIENT})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    consumer.poll(1.0)
    late = sorted(_across(producer, consumer, topic) for _ in range(scaled(ACROSS)))
    consumer.close()
    workloads.drop(server, topic)
    return Sample({"p50 ms": late[len(late) // 2], "p99 ms": late[int(0.99 * (len(late) - 1))]})


def _across(producer: Producer, consumer: Consumer, topic: str) -> float:
    acknowledged: list[float] = []
    producer.produce(
        topic,
        b"x" * 100,
        partition=0,
        on_delivery=lambda *_: acknowledged.append(time.perf_counter()),
    )
    while not acknowledged:
        producer.poll(0.001)
    message = consumer.poll(30)
    if message is None or message.error():
        raise SystemExit("a record did not reach the other broker's reader")
    return max(0.0, time.perf_counter() - acknowledged[0]) * 1000


def fill(server: Server) -> None:
    """A topic to be read."""
    workloads.create(server, [CONSUMED_TOPIC])
    workloads.send(
        server,
        CONSUMED_TOPIC,
        value_bytes=1000,
        total_bytes=scaled(CONSUMED_BYTES),
        batch_bytes=1_000_000,
    )


def one_at_a_time(server: Server) -> Sample:
    """Nothing else under way, so that each record is an object and a commit."""
    return workloads.one_at_a_time(server, value_bytes=100, count=scaled(2_000))


BESIDE_KAFKA = {**TRIOS, "anabranch": DisklessTrio}
BESIDE_CLASSIC = {"anabranch": DisklessTrio, "classic": AnabranchTrio}
ALONE = {"anabranch": DisklessTrio}

DISKLESS_ROWS = [
    Row(
        "diskless-12-partitions",
        "diskless beside Kafka with 3 replicas, acks=all: 1 KB, 12 partitions in turn, 150 MB",
        produced,
        {"MB/s": more(2), "CPU s/GB": less(1 / 3), "written over produced": own_less(1.1)},
        servers=BESIDE_KAFKA,
        written_bytes=150 * MB,
    ),
    Row(
        "diskless-one-at-a-time",
        "one record of 100 B at a time, an object and a commit each, 2,000 of them",
        one_at_a_time,
        {"p50 ms": own_less(5), "p99 ms": own_less(15)},
        servers=ALONE,
    ),
    Row(
        "diskless-one-at-a-time-postgres",
        "the same with the coordinator in PostgreSQL",
        one_at_a_time,
        {"p50 ms": own_less(5), "p99 ms": own_less(15)},
        servers={"anabranch": DisklessOnPostgres},
    ),
    Row(
        "diskless-across",
        "acknowledged by one broker, read at another: after the acknowledgement, 500 records",
        across,
        {"p99 ms": own_less(15)},
        servers=ALONE,
    ),
    Row(
        "diskless-consume",
        "1 KB from a diskless topic just written, beside a classic one, 200 MB",
        lambda server: workloads.consume(
            server, CONSUMED_TOPIC, value_bytes=1000, total_bytes=scaled(CONSUMED_BYTES)
        ),
        {"MB/s": more(0.7)},
        servers=BESIDE_CLASSIC,
        prepare=fill,
    ),
    Row(
        "diskless-memory-slow-store",
        f"resident memory of one broker, producers at full speed, S3 that takes "
        f"{slow_store.RATE // MB} MB/s, {slow_store.SECONDS:.0f} s",
        slow_store.resident,
        {
            "MiB over idle": own_less(slow_store.MOST_MIB),
            "last quarter over the one before": own_less(1.05),
        },
        servers={"anabranch": slow_store.OnSlowStore},
        fresh=True,
        rounds_at_most=1,
        warm_up=False,
        note="8 buffers of 8 MiB and a cache of 32 MiB; the store is moto's behind a slow link",
    ),
]
"""In the order in which a run takes them."""
