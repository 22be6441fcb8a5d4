# --8<-- [start:first]
import pytest
from billing import Billing
from confluent_kafka import Consumer, Producer


def test_each_order_gets_an_invoice(anabranch_cluster):
    brokers = anabranch_cluster.bootstrap_servers
    order(anabranch_cluster, b"42 apples")

    billing = Billing(brokers)
    billing.bill(1)
    billing.close()

    assert invoices(brokers, 1) == [b"invoice: 42 apples"]


def order(cluster, *orders):
    """Create the topics, and order something."""
    for topic in ("orders", "invoices"):
        if topic not in cluster.topics():
            cluster.create_topic(topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for each in orders:
        producer.produce("orders", key="customer-1", value=each)
    assert producer.flush(60) == 0


def invoices(brokers, count):
    """Read so many invoices."""
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["invoices"])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    return [each.value() for each in found]
# --8<-- [end:first]


# --8<-- [start:killed]
@pytest.mark.anabranch(brokers=3, racks=["a", "b", "c"])
def test_billing_survives_the_death_of_a_leader(anabranch_cluster):
    cluster = anabranch_cluster
    order(cluster, b"42 apples")
    billing = Billing(cluster.bootstrap_servers)

    with cluster.kill(cluster.leader("invoices")):
        billing.bill(1)
    cluster.wait_in_sync()

    order(cluster, b"7 pears")
    billing.bill(1)
    billing.close()
    assert invoices(cluster.bootstrap_servers, 2) == [b"invoice: 42 apples", b"invoice: 7 pears"]
# --8<-- [end:killed]


# --8<-- [start:paused]
QUICK = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500}


@pytest.mark.anabranch(brokers=3, controller=3, config=QUICK)
def test_billing_survives_a_frozen_broker(anabranch_cluster):
    cluster = anabranch_cluster
    order(cluster, b"42 apples")
    billing = Billing(cluster.bootstrap_servers)

    leader = cluster.leader("invoices")
    with cluster.pause(leader if leader != cluster.controller() else 1):
        billing.bill(1)
    billing.close()
    assert invoices(cluster.bootstrap_servers, 1) == [b"invoice: 42 apples"]
# --8<-- [end:paused]
