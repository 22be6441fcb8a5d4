"""R8 over real sockets: a consumer of librdkafka reads from the follower in its rack."""

from __future__ import annotations

import urllib.request

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.three_kit import IDS, RACKS, partitions_of, produce, running, three_threads

from anabranch.core.replication.selection import RACK_AWARE_SELECTOR

RECORDS = 300


@pytest.fixture
def nodes(tmp_path):
    """Three nodes in three racks, each with its page of metrics; node id -> (node, its page)."""
    made = three_threads(tmp_path, RACKS, pages=True, replica_selector_class=RACK_AWARE_SELECTOR)
    with running(made):
        yield {
            each: (node, f"http://{node.node.http_address}/metrics") for each, node in made.items()
        }


def consumer_fetches(page):
    """Fetch requests in the versions that librdkafka speaks: brokers speak a newer one."""
    text = urllib.request.urlopen(page).read().decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("kafka_network_requestmetrics_requests_total{")
        and 'request="Fetch"' in line
        and 'role="broker"' in line
        and any(f'version="{version}"' in line for version in range(4, 17))
    )


def consumer_in(rack, bootstrap):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "client.rack": rack,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    return consumer


def read_all(consumer, count):
    values = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {len(values)} of {count}"
        assert not message.error(), message.error()
        values.append(message.value())
    return values


def test_r8_a_consumer_reads_from_the_replica_in_its_rack(nodes):
    bootstrap = ",".join(node.bootstrap for node, _ in nodes.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(20)
    until(lambda: len(partitions_of(admin)[0].isrs) == len(IDS))
    leader = partitions_of(admin)[0].leader
    near, other = (each for each in IDS if each != leader)
    first = [b"first-%d" % each for each in range(RECORDS)]
    produce(bootstrap, first)
    consumer = consumer_in(RACKS[near], bootstrap)
    try:
        assert read_all(consumer, RECORDS) == first
        before = {each: consumer_fetches(page) for each, (_, page) in nodes.items()}
        assert before[near] >= 1
        second = [b"second-%d" % each for each in range(RECORDS)]
        produce(bootstrap, second)
        assert read_all(consumer, RECORDS) == second
        # A request that waits is counted before it is answered: all may have come with that one.
        until(lambda: consumer_fetches(nodes[near][1]) > before[near])
        after = {each: consumer_fetches(page) for each, (_, page) in nodes.items()}
        nodes[near][0].stop()
        third = [b"third-%d" % each for each in range(RECORDS)]
        produce(bootstrap, third)
        assert read_all(consumer, RECORDS) == third, "the leader serves when the near one is away"
        assert consumer_fetches(nodes[leader][1]) > before[leader]
    finally:
        consumer.close()
    assert after[leader] == before[leader]
    assert after[other] == before[other] == 0
