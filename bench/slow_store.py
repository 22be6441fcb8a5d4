"""What a broker keeps in memory while its store takes less than producers send.

One node with diskless topics alone, and an S3 server of its own (moto's) behind a link that lets
`RATE` bytes a second pass. Producers send as fast as they are let, so many that what they have in
flight is more than the broker takes; a consumer reads along. Resident memory is looked at each half
second. What may stay: eight write buffers and the cache, beside what the idle broker has.
"""

from __future__ import annotations

import sys
import threading
import time

import workloads
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from scale import scaled_seconds
from servers import ROOT, Anabranch, Server
from workloads import CLIENT, Sample

from anabranch.server.one_machine import COORDINATOR

SECONDS = 240.0
"""The first half fills the cache and grows the heap; the other two quarters are compared."""
LOOK_SECONDS = 0.5
RATE = 4_000_000
"""Bytes a second: an object of 8 MiB takes two seconds."""
PRODUCERS = 16
"""Each has 5 MB in flight at most: together more than six write buffers."""
VALUE_BYTES = 10_000
PARTITIONS = 12
TOPIC = "slow-store"
MIB = 1 << 20
BUFFERS, BUFFER_MIB, CACHE_MIB = 8, 8, 32
"""The cache is smaller than by default, so that it is full in the first half."""
MOST_MIB = BUFFERS * BUFFER_MIB + CACHE_MIB


class OnSlowStore(Anabranch):
    """A node whose diskless records lie in S3."""

    def prepare(self) -> None:
        """Start the S3 server."""
        sys.path.insert(0, str(ROOT))
        from bench.s3_server import S3Server

        self.store = S3Server()
        self.settings |= {
            "diskless.storage.system.enable": "true",
            "diskless.storage.url": self.store.url("bench"),
            "diskless.coordinator.url": f"sqlite://{self.folder.resolve()}/{COORDINATOR}",
            "log.diskless.enable": "true",
            "diskless.fetch.cache.max.bytes": CACHE_MIB * MIB,
        }

    def stop(self) -> None:
        """End the node, then its store."""
        super().stop()
        self.store.stop()

    def slow_down(self) -> None:
        """Let few bytes pass from now on."""
        from bench.slow_link import Condition

        self.store.become(Condition(bytes_per_second=RATE))


class _Load:
    """Producers and a consumer on threads, until `end`."""

    def __init__(self, server: Server) -> None:
        self._over = threading.Event()
        self.acknowledged = 0
        self._threads = [
            threading.Thread(target=each, args=(server.bootstrap,), daemon=True)
            for each in (*[self._write] * PRODUCERS, self._read)
        ]
        for each in self._threads:
            each.start()

    def end(self) -> None:
        """Stop all; what producers have queued is given up."""
        self._over.set()
        for each in self._threads:
            each.join()

    def _write(self, servers: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "queue.buffering.max.kbytes": 8_192,
                **CLIENT,
            }
        )
        values, number = workloads.values_of(VALUE_BYTES), 0
        while not self._over.is_set():
            try:
                producer.produce(
                    TOPIC, values[number & 4095], partition=number % PARTITIONS,
                    on_delivery=self._told,
                )  # fmt: skip
                number += 1
            except BufferError:
                producer.poll(0.05)
            if number % 100 == 0:
                producer.poll(0)
        producer.purge()

    def _told(self, error: object, _message: object) -> None:
        self.acknowledged += error is None

    def _read(self, servers: str) -> None:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "slow-store", **CLIENT})
        consumer.assign([TopicPartition(TOPIC, each, OFFSET_END) for each in range(PARTITIONS)])
        while not self._over.is_set():
            consumer.consume(1000, 0.1)
        consumer.close()


def resident(server: OnSlowStore) -> Sample:
    """MiB over the idle broker: the most, and the last quarter of the time over the one before."""
    server.start()
    workloads.create(server, [TOPIC], PARTITIONS)
    time.sleep(2.0)
    idle = server.resident_bytes()
    server.slow_down()
    load = _Load(server)
    seen: list[int] = []
    until = time.perf_counter() + scaled_seconds(SECONDS)
    while time.perf_counter() < until:
        time.sleep(LOOK_SECONDS)
        seen.append(server.resident_bytes() - idle)
    load.end()
    quarter = len(seen) // 4
    before, last = seen[-2 * quarter : -quarter], seen[-quarter:]
    return Sample(
        {
            "MiB over idle": max(seen) / MIB,
            "last quarter over the one before": sum(last) / sum(before),
            "MB/s": load.acknowledged * VALUE_BYTES / scaled_seconds(SECONDS) / 1e6,
        }
    )
