"""Clocks that jump by days on one node: only what is written into records follows them (R15, R17)."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from bad_kit import SECONDS, eventually
from confluent_kafka import KafkaError, TopicPartition

from anabranch.testing import LocalCluster

DAYS_S = 3 * 24 * 3600
SESSION_S = 6.0
"""Also a process that stands still for some seconds on a busy machine keeps its session."""
LONGER_THAN_A_SESSION_S = 1.25 * SESSION_S
"""Well over what ends a session whose heartbeats stopped with the jump; over a lease too."""
BEATS_S = 1.5
"""Some heartbeats, and looks at sessions and leases: what a clock that is ahead ends, ends at once.
What its jump back stops, the writes after the next jump show, which is one back too."""
SETTINGS = {
    "broker.session.timeout.ms": int(SESSION_S * 1000),
    "broker.heartbeat.interval.ms": 500,
    "min.insync.replicas": 2,
    "auto.leader.rebalance.enable": False,
}
TAKEN, REFUSED = None, KafkaError.INVALID_TIMESTAMP


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(brokers=3, processes=True, config=SETTINGS) as cluster:
        cluster.create_topic("made", partitions=3)
        appended = {"message.timestamp.type": "LogAppendTime"}
        cluster.create_topic("appended", partitions=3, config=appended)
        cluster.wait_in_sync(timeout_seconds=60)
        yield cluster


def decided(cluster):
    """Who leads, and in which term the controller decides."""
    return [cluster.leader(topic, each) for topic in ("made", "appended") for each in range(3)], (
        cluster.controller()
    )


def write(cluster, topic, partition):
    """The code of the error of one record that is of now, None when it was acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    codes = []
    producer.produce(
        topic, b"x", partition=partition,
        on_delivery=lambda fault, _: codes.append(fault.code() if fault else None),
    )  # fmt: skip
    assert producer.flush(SECONDS) == 0
    return codes[0]


def last(cluster, topic, partition):
    """The timestamp of a partition's last record, in seconds, and how many records there are."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "last"}
    )
    try:
        end = reader.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
        reader.assign([TopicPartition(topic, partition, end - 1)])
        (message,) = reader.consume(1, SECONDS)
        return message.timestamp()[1] / 1000, end
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days_s", "seconds"), [(DAYS_S, BEATS_S), (-DAYS_S, LONGER_THAN_A_SESSION_S)]
)
@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_clock_that_jumps(cluster, broker_id, days_s, seconds):
    """No session ends, nobody is elected. A leader that is behind refuses what is of today, as
    Kafka does; one that is ahead takes it."""
    before = decided(cluster)
    partition = next(each for each in range(3) if cluster.leader("made", each) == broker_id)
    there = next(each for each in range(3) if cluster.leader("appended", each) == broker_id)
    assert write(cluster, "made", partition) is TAKEN
    begun = last(cluster, "made", partition)[1]
    cluster.advance_clock(days_s, broker_id)
    try:
        since = time.monotonic()
        other = (partition + 1) % 3
        eventually(
            lambda: write(cluster, "made", other) is TAKEN and time.monotonic() - since > seconds,
            "writes for as long as it takes to notice",
        )
        assert write(cluster, "made", partition) == (TAKEN if days_s > 0 else REFUSED)
        assert write(cluster, "appended", there) is TAKEN
        assert abs(last(cluster, "appended", there)[0] - time.time() - days_s) < 60
        assert decided(cluster) == before
    finally:
        cluster.advance_clock(-days_s, broker_id)
    assert write(cluster, "made", partition) is TAKEN
    at_s, end = last(cluster, "made", partition)
    assert abs(at_s - time.time()) < 60
    assert end == begun + (2 if days_s > 0 else 1)
    assert decided(cluster) == before
    cluster.wait_in_sync(timeout_seconds=60)
