"""R20: librdkafka and partitions that nobody leads: it is told nothing that it would misread."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from anabranch.testing import LocalCluster

PARTITIONS = 12
PATIENCE_S = 60.0
READER = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g"})
consumer.assign([TopicPartition("t", index, 0) for index in range(int(sys.argv[2]))])
while True:
    for message in consumer.consume(100, 0.2):
        if message.error() is None:
            print(message.partition(), flush=True)
"""
MISREAD = "not found in cache"
"""What librdkafka says of a partition or a leader that it has never heard of."""


@pytest.mark.slow
def test_a_reader_is_not_told_of_leaders_that_are_none(tmp_path):
    """Beside a leader that is one, a leader of -1 made it take any memory for partitions."""
    said = tmp_path / "said"
    with (
        LocalCluster(brokers=3, processes=True, folder=tmp_path / "nodes") as cluster,
        said.open("w") as log,
    ):
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=2)
        produce_to_each(cluster.bootstrap_servers)
        words = [sys.executable, "-c", READER, cluster.bootstrap_servers, str(PARTITIONS)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True) as reader:
            try:
                read = {int(reader.stdout.readline()) for _ in range(PARTITIONS)}
                assert read == set(range(PARTITIONS))
                for broker_id in (1, 2):
                    cluster.stop_broker(broker_id)
                    wait_until(lambda: f"/{broker_id}: Disconnected" in said.read_text())  # noqa: B023
                assert reader.poll() is None
            finally:
                reader.kill()
    assert [line for line in said.read_text().splitlines() if MISREAD in line] == []


def produce_to_each(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap})
    for index in range(PARTITIONS):
        producer.produce("t", b"value", partition=index)
    assert producer.flush(PATIENCE_S) == 0


def wait_until(is_so):
    """Fails when it has not become so in time."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
