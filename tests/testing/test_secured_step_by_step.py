"""The steps in which a plaintext cluster is secured: each is a restart of one broker, so brokers of two steps work
together, and clients of both listeners, too."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from anabranch.client.ports import free_ports
from anabranch.testing import LocalCluster
from anabranch.testing.security import ClusterSecurity

SECONDS = 30


@pytest.fixture
def security():
    made = ClusterSecurity("SASL_SSL")
    yield made
    made.close()


@pytest.mark.parametrize("secured", [(), (2,), (1, 2, 3)])
def test_brokers_that_use_the_old_and_the_new_listener_replicate(security, secured):
    """`secured` brokers speak to others over the new one already."""
    ports = free_ports(9)
    common = security.node_settings() | {
        "listener.security.protocol.map": "OLD:PLAINTEXT,NEW:SASL_SSL,CONTROLLER:PLAINTEXT",
        "super.users": "User:node;User:ANONYMOUS",
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{each}" for each in ports[6:]),
    }
    own = {
        broker: {
            "listeners": f"OLD://127.0.0.1:{ports[broker - 1]},NEW://127.0.0.1:{ports[broker + 2]},"
            f"CONTROLLER://127.0.0.1:{ports[broker + 5]}",
            "inter.broker.listener.name": "NEW" if broker in secured else "OLD",
        }
        for broker in (1, 2, 3)
    }
    with LocalCluster(brokers=3, config=common, broker_config=own) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        cluster.wait_in_sync("t")
        new = ",".join(f"127.0.0.1:{each}" for each in ports[3:6])
        producer = Producer({"bootstrap.servers": new, **security.librdkafka_properties})
        for number in range(30):
            producer.produce("t", str(number))
        assert producer.flush(SECONDS) == 0
        old = {"bootstrap.servers": f"127.0.0.1:{ports[0]}", "group.id": "g"}
        consumer = Consumer({**old, "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = consumer.consume(30, SECONDS)
        consumer.close()
        assert len(found) == 30
