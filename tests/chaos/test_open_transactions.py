"""What chaos says of transactions that are still open when all must have ended."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.testing import LocalCluster
from chaos import open_transactions


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as made:
        made.create_topic("orders", partitions=1)
        asking = Consumer({"bootstrap.servers": made.bootstrap_servers, "group.id": "any"})
        asking.committed([TopicPartition("orders", 0)], timeout=20)  # makes the topic of offsets
        asking.close()
        yield made


def test_only_what_is_open_is_told(cluster, monkeypatch):
    monkeypatch.setattr(open_transactions, "WAIT_SECONDS", 0)
    made = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "transfer"}
    producer = Producer(made)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    producer.flush(10)
    told = open_transactions.left_open(cluster.bootstrap_servers, ["orders"])
    assert [each.partition(":")[0] for each in told] == ["under way", "open"]
    monkeypatch.setattr(open_transactions, "WAIT_SECONDS", 20)
    producer.commit_transaction(10)
    assert open_transactions.left_open(cluster.bootstrap_servers, ["orders"]) == []
