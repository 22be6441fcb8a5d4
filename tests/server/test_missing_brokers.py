"""K1-K4, K6: topics are created while a broker never came, as real clients see it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka import KafkaAdminClient
from tests.clients.members import until
from tests.server.node_kit import END_SECONDS
from tests.server.three_kit import partitions_of

from anabranch.cli.local_brokers import LocalBrokers

ON = "enable.under.replicated.topic.creation=true"


@pytest.fixture
def three(tmp_path):
    """Start a cluster of three of which two have come."""
    started = []

    def start(*settings: str) -> LocalBrokers:
        brokers = LocalBrokers(str(tmp_path / "three"), brokers=3, settings=settings)
        started.append(brokers)
        for node in brokers.nodes[:2]:
            node.start()
        for node in brokers.nodes[:2]:
            node.wait_ready()
        return brokers

    yield start
    for brokers in started:
        brokers.close()


def admin_of(brokers: LocalBrokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.nodes[0].bootstrap, "log_level": 0})


def replicas(
    admin: AdminClient, topic: str = "t", count: int = 3
) -> list[tuple[list[int], list[int]]]:
    partitions = partitions_of(admin, topic, count)
    return [(each.replicas, sorted(each.isrs)) for _, each in sorted(partitions.items())]


def test_off_nothing_is_created(three):
    admin = admin_of(three())
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(20)
    assert "only 2 broker(s) are registered" in refused.value.args[0].str()


def test_on_clients_write_at_once_and_the_third_broker_fills_up(three):
    brokers = three(ON)
    admin = admin_of(brokers)
    admin.create_topics([NewTopic("t", 2, 3)])["t"].result(20)
    admin.create_partitions([NewPartitions("t", 3)])["t"].result(20)
    seen = replicas(admin)
    assert [(sorted(ids[:2]), ids[2:], isr) for ids, isr in seen] == [([1, 2], [-1], [1, 2])] * 3
    other = KafkaAdminClient(bootstrap_servers=brokers.nodes[0].bootstrap)

    def described():
        (topic,) = other.describe_topics(["t"])
        return topic["partitions"] if len(topic["partitions"]) == 3 else None

    assert [each["replica_nodes"][2] for each in until(described)] == [-1, -1, -1]
    other.close()
    producer = Producer({"bootstrap.servers": brokers.nodes[0].bootstrap, "acks": "all"})
    for index in range(300):
        producer.produce("t", b"record %d" % index, partition=index % 3)
    assert producer.flush(20) == 0
    brokers.nodes[2].start()
    brokers.nodes[2].wait_ready()

    def filled():
        found = replicas(admin)
        return found if all(isr == [1, 2, 3] for _, isr in found) else None

    found = until(filled, "all in sync")
    assert all(sorted(ids) == [1, 2, 3] and ids[0] != 3 for ids, _ in found)


def test_topics_that_come_with_their_first_record_follow_the_same_rule(three):
    brokers = three(ON, "default.replication.factor=3", "auto.create.topics.enable=true")
    producer = Producer({"bootstrap.servers": brokers.nodes[0].bootstrap, "acks": "all"})
    producer.produce("by-itself", b"first")
    assert producer.flush(20) == 0
    ((ids, in_sync),) = replicas(admin_of(brokers), "by-itself", 1)
    assert (sorted(ids[:2]), ids[2:], in_sync) == ([1, 2], [-1], [1, 2])


@pytest.mark.slow
def test_in_a_rolling_restart_no_creation_fails(three):
    brokers = three(ON)
    brokers.nodes[2].start()
    brokers.nodes[2].wait_ready()
    created = 0
    for node in brokers.nodes:
        node.process.terminate()
        admin = admin_of_others(brokers, node)
        end, least = time.monotonic() + 1.5, created + 2
        while time.monotonic() < end or created < least:
            admin.create_topics([NewTopic(f"t{created}", 1, 3)])[f"t{created}"].result(20)
            created += 1
        node.process.wait(END_SECONDS)
        admin.create_topics([NewTopic(f"t{created}", 1, 3)])[f"t{created}"].result(20)
        created += 1
        node.start()
        node.wait_ready()
    assert created > 6


def admin_of_others(brokers, gone) -> AdminClient:
    servers = ",".join(each.bootstrap for each in brokers.nodes if each is not gone)
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})
