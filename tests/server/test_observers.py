"""R9 on real nodes: an observer copies, serves readers of its rack, and is never in sync."""

from __future__ import annotations

import json

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.clients.members import until
from tests.server.test_closest_replica import (
    RECORDS,
    consumer_fetches,
    consumer_in,
    nodes,
    read_all,
)
from tests.server.three_kit import partitions_of, produce

__all__ = ["nodes"]

CONSTRAINTS = {
    "version": 2,
    "replicas": [{"count": 1, "constraints": {"rack": rack}} for rack in "ab"],
    "observers": [{"count": 1, "constraints": {"rack": "c"}}],
}
"""Brokers 1 and 2 stand in racks a and b, 3 in c."""


def was_copied(nodes):
    """Whether the leader knows that the observer has the records: `acks=all` waits for no observer,
    and who has not the first of them is sent no reader."""
    led = [nodes[each][0].node.broker.broker.partitions.get("t", 0) for each in (1, 2)]
    known = [each.followers[3].end_offset for each in led if each and 3 in each.followers]
    return known == [RECORDS]


def test_an_observer_copies_and_serves_its_rack_and_is_never_in_sync(nodes):
    bootstrap = ",".join(node.bootstrap for node, _ in nodes.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"confluent.placement.constraints": json.dumps(CONSTRAINTS)}
    admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(20)
    first = [b"first-%d" % each for each in range(RECORDS)]
    produce(bootstrap, first)
    until(lambda: was_copied(nodes), "the observer's copy")
    observer = nodes[3][0].node.broker.broker
    leaders = {nodes[each][1] for each in (1, 2)}
    consumer = consumer_in("c", bootstrap)
    try:
        assert read_all(consumer, RECORDS) == first
        before = {page: consumer_fetches(page) for page in leaders}
        served = consumer_fetches(nodes[3][1])
        second = [b"second-%d" % each for each in range(RECORDS)]
        produce(bootstrap, second)
        assert read_all(consumer, RECORDS) == second
        # A request that waits is counted before it is answered: all may have come with that one.
        until(lambda: consumer_fetches(nodes[3][1]) > served, "the observer's next fetch")
    finally:
        consumer.close()
    assert served >= 1, "the observer serves its rack"
    assert {page: consumer_fetches(page) for page in leaders} == before
    admin.create_partitions([NewPartitions("t", 2)])["t"].result(20)
    until(lambda: sum(each.topic_partition.topic == "t" for each in observer.partitions) == 2)
    for index in (0, 1):
        state = observer.image.partition("t", index)
        assert (sorted(state.replicas), sorted(state.isr)) == ([1, 2], [1, 2])
        assert state.observers == (3,)
    partitions = partitions_of(admin, count=2)
    assert [sorted(each.isrs) for each in partitions.values()] == [[1, 2], [1, 2]]
