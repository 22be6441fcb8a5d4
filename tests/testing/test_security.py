"""Clusters with TLS and SASL: three brokers replicate, forward, fail over and obey ACLs."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from anabranch.core.access.standard_authorizer import STANDARD_AUTHORIZER
from anabranch.testing import ClusterError, LocalCluster
from anabranch.testing.security import SECURE

SECONDS = 30


@pytest.mark.parametrize("protocol", SECURE)
@pytest.mark.parametrize("with_acls", [False, True])
def test_three_brokers_replicate_and_fail_over(protocol, with_acls):
    config = {"authorizer.class.name": STANDARD_AUTHORIZER} if with_acls else {}
    with LocalCluster(brokers=3, security=protocol, config=config) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        cluster.wait_in_sync("orders")
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers, **cluster.security.librdkafka_properties
        }  # fmt: skip
        producer = Producer(settings)
        for number in range(300):
            producer.produce("orders", str(number), partition=number % 3)
        assert producer.flush(SECONDS) == 0
        cluster.kill(cluster.leader("orders", 0))
        for number in range(300, 600):
            producer.produce("orders", str(number), partition=number % 3)
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        found = set()
        while len(found) < 600:
            batch = consumer.consume(600, SECONDS)
            assert batch, f"{len(found)} records came"
            found |= {each.value() for each in batch if not each.error()}
        consumer.close()


def test_a_stranger_gets_nowhere():
    with LocalCluster(security="SASL_SSL") as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            **cluster.security.librdkafka_properties, "sasl.password": "wrong",
        }  # fmt: skip
        with pytest.raises(KafkaException):
            AdminClient(settings).list_topics(timeout=3)


def test_a_cluster_of_processes():
    with LocalCluster(brokers=2, processes=True, security="SASL_SSL") as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.wait_in_sync("t")


def test_another_protocol_is_refused():
    with pytest.raises(ClusterError, match="SASL_SSL"):
        LocalCluster(security="KERBEROS").start()
