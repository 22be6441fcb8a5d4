"""What tests of faults do with a cluster: write, and see how far it goes."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def producer(cluster, **config):
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0}
    return Producer({**servers, "acks": "all", "enable.idempotence": True, **config})


def produce(cluster, count=1, name="t", **config):
    """Some records, each acknowledged; the seconds it took."""
    writes, failures, begun = producer(cluster, **config), [], time.monotonic()
    for number in range(count):
        writes.produce(name, b"%d" % number, on_delivery=lambda error, _: failures.append(error))
        assert writes.flush(30) == 0
    assert failures == [None] * count
    return time.monotonic() - begun


def offsets(cluster, name="t"):
    """First and next offset of a partition."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(servers)
    try:
        return consumer.get_watermark_offsets(TopicPartition(name, 0), 20)
    finally:
        consumer.close()


def new_threads(before):
    """Threads that were not there before, and stay: those of a store end a moment after it."""
    until = time.monotonic() + 10
    while (new := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    return new
