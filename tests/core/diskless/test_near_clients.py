"""How many partitions of produce and fetch requests a broker serves in their client's rack."""

from __future__ import annotations

import pytest
from immutables import Map
from tests.core.api.in_memory_node import LISTENER, broker_image
from tests.core.diskless.diskless_node import Cluster, batch

from anabranch.core.outcome import Wait
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NEAR, FAR, UNNAMED = "app,diskless_az=a", "app,diskless_az=b", "app"


@pytest.fixture
def node():
    """A broker in rack a, with the diskless topics d and e and the classic topic c."""
    cluster = Cluster()
    node = cluster.node()
    for name in "de":
        cluster.topic(name, partitions=3)
    node.topic("c", partitions=3)
    place(node, "a")
    for topic in "de":
        write(node, UNNAMED, topic, 0)
    write(node, UNNAMED, "c", 0)
    node.broker.metadata_cache.served.unaware.clear()
    return node


def place(node, rack):
    """Put the broker into a rack; there are others in b and z."""
    image = node.broker.image
    racks = {1: rack, 2: "b", 3: "z"}
    brokers = Map({each: broker_image(each, rack=racks[each]) for each in racks})
    fields = {each: getattr(image, each) for each in image.__struct_fields__}
    node.broker.image = type(image)(**fields | {"brokers": brokers})


def write(node, client_id, topic, *indexes):
    data = [PartitionProduceData(index=each, records=bytes(batch(b"x"))) for each in indexes]
    body = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=body)
    outcome = node.go_on(node.send(request, 9, client_id=client_id))
    if isinstance(outcome, Wait):
        node.settle()
        outcome = node.polled(outcome)
    return outcome


def read(node, client_id, topic, *indexes, offset=0):
    partitions = [
        FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20)
        for each in indexes
    ]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    return node.go_on(node.send(request, 12, client_id=client_id))


def served(node, topic="d"):
    """(hits, misses, unaware) of a topic."""
    found = node.broker.metadata_cache.served
    return found.hits[topic], found.misses[topic], found.unaware[topic]


def test_batches_that_were_taken_and_records_that_were_given_are_counted(node):
    write(node, NEAR, "d", 0, 1)
    assert served(node) == (2, 0, 0)
    write(node, FAR, "d", 0)
    assert served(node) == (2, 1, 0)
    write(node, UNNAMED, "d", 2)
    assert served(node) == (2, 1, 1)
    read(node, NEAR, "d", 0, 1, 2)
    assert served(node) == (5, 1, 1)
    read(node, FAR, "d", 1)
    read(node, UNNAMED, "d", 1)
    assert served(node) == (5, 2, 2)
    assert served(node, "e") == (0, 0, 0)


def test_what_was_refused_or_empty_and_classic_topics_are_not(node):
    write(node, NEAR, "d", 7)
    write(node, NEAR, "nowhere", 0)
    read(node, NEAR, "d", 7)
    read(node, NEAR, "d", 1)
    read(node, NEAR, "d", 0, offset=1)
    write(node, NEAR, "c", 0)
    read(node, NEAR, "c", 0)
    assert [served(node, each) for each in ("d", "c", "nowhere")] == [(0, 0, 0)] * 3
    assert read(node, NEAR, "c", 0).responses[0].partitions[0].records


def test_of_several_topics_each_counts_its_own(node):
    body = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=each, records=bytes(batch(b"x")))
                            for each in indexes],
        )
        for name, indexes in (("c", (0,)), ("e", (1, 2)), ("d", (0,)))
    ]  # fmt: skip
    node.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=body), 9, client_id=NEAR)
    node.settle()
    assert (served(node, "d"), served(node, "e")) == ((1, 0, 0), (2, 0, 0))
    wanted = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
              for each in range(3)]  # fmt: skip
    topics = [FetchTopic(topic=name, partitions=wanted) for name in "ced"]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    node.go_on(node.send(request, 12, client_id=FAR))
    assert (served(node, "d"), served(node, "e")) == ((1, 1, 0), (2, 3, 0))


def test_the_rack_that_counts_is_the_present_one(node):
    write(node, NEAR, "d", 0)
    place(node, "b")
    write(node, NEAR, "d", 0)  # no broker is in rack a any more: it is no client's
    write(node, FAR, "d", 0)
    assert served(node) == (2, 0, 1)
    node.broker.config = node.broker.config.of(
        {"diskless.storage.system.enable": "true",
         "diskless.client.az.listener.map": f"{LISTENER}:z"}
    )  # fmt: skip
    write(node, UNNAMED, "d", 0)
    assert served(node) == (2, 1, 1)


def test_ids_of_many_clients_take_bounded_memory(node):
    cache = node.broker.metadata_cache
    for number in range(20_050):
        cache.zone(node.broker.image, f"client-{number}", LISTENER, ())
    cache.zone(node.broker.image, "x" * 30_000, LISTENER, ())
    assert sum(len(name or "") for name, _ in cache._clients) < 300_000
