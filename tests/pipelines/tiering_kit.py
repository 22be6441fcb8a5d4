"""Diskless topics with little in each segment, filled and read as tests of tiering need them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from anabranch.core.diskless.claim import CLAIM_KEY

SECONDS = 30.0
VALUES = 400
BEGIN_MS = time.time_ns() // 1_000_000 - 60_000
SETTINGS = {
    "diskless.enable": "true",
    "diskless.tiering.age.ms": "0",
    "diskless.tiering.min.segment.bytes": "1",
    "segment.bytes": "1048576",
}


def store_folder(cluster) -> Path:
    (found,) = Path(cluster.own_folder).rglob(CLAIM_KEY)
    return found.parent


def make(admin, name, partitions=2, **settings):
    topic = NewTopic(name, partitions, replication_factor=-1, config={**SETTINGS, **settings})
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS)


def write(cluster, name, count=VALUES, *, partitions=2, first=0, **config):
    failures = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5, **config}
    )
    for number in range(first, first + count):
        producer.produce(
            name, f"value {number}".encode() * 9, key=b"k", partition=number % partitions,
            timestamp=BEGIN_MS + number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        if number % 40 == 39:
            producer.flush(SECONDS)  # several objects
    assert producer.flush(SECONDS) == 0
    assert not failures


def read(cluster, name, partition, count, offset=OFFSET_BEGINNING):
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "log_level": 0}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(name, partition, offset)])
        found = []
        while len(found) < count:
            batch = consumer.consume(count, SECONDS)
            assert batch, found[-1:]
            for each in batch:
                assert not each.error(), each.error()
            found += batch
    return [(each.offset(), each.value()) for each in found]


def rows_of(cluster, query, *values):
    (path,) = Path(cluster.own_folder).rglob("diskless.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as on:
        return on.execute(query, values).fetchall()


def runs(cluster, name):
    query = "SELECT count(*) FROM runs JOIN logs USING (topic_id, partition) WHERE topic_name = ?"
    return rows_of(cluster, query, name)[0][0]
