"""The lines of produce requests that wait for acks=all."""

from __future__ import annotations

from tests.core.api.in_memory_node import InMemoryNode, take_offline

from anabranch.core.api.acks import Acks, Awaited
from anabranch.core.log.appends import AppendResult
from anabranch.core.types import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(2)]


def upto(end_offset):
    """The ticket of a batch that ends before an offset."""
    return AppendResult(0, end_offset - 1, -1, 0, False)


def node_with_lines():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(partitions=2, replicas=(1, 2))
    return node, Acks()


def test_the_front_of_a_line_goes_first_and_the_rest_waits():
    node, acks = node_with_lines()
    replica, keys = node.replica(), [Awaited() for _ in range(3)]
    for index, key in enumerate(keys):
        acks.wait(replica, upto(index + 1), replica.led_from_epoch, key)
    assert acks.moved(PLACES[0], node.broker.partitions) == []
    replica.high_watermark = 2
    assert acks.moved(PLACES[0], node.broker.partitions) == keys[:2]
    assert len(acks) == 1


def test_a_request_for_two_partitions_is_woken_when_neither_waits():
    node, acks = node_with_lines()
    key = Awaited()
    for index in (0, 1):
        replica = node.replica(index=index)
        acks.wait(replica, upto(1), replica.led_from_epoch, key)
    node.replica(index=0).high_watermark = 1
    assert acks.moved(PLACES[0], node.broker.partitions) == []
    node.replica(index=1).high_watermark = 1
    assert acks.moved(PLACES[1], node.broker.partitions) == [key]
    assert len(acks) == 0


def test_who_gave_up_leaves_the_line():
    """Producers try again for as long as a partition stands still."""
    node, acks = node_with_lines()
    replica, patient = node.replica(), Awaited()
    for attempt in range(1000):
        acks.wait(replica, upto(attempt + 1), replica.led_from_epoch, Awaited())
    acks.wait(replica, upto(1001), replica.led_from_epoch, patient)
    assert len(acks) == 1
    replica.high_watermark = 1001
    assert acks.moved(PLACES[0], node.broker.partitions) == [patient]


def test_a_line_goes_when_the_leadership_moves_or_the_replica_is_gone():
    node, acks = node_with_lines()
    keys = [Awaited(), Awaited()]
    for index, key in enumerate(keys):
        replica = node.replica(index=index)
        acks.wait(replica, upto(1), replica.led_from_epoch, key)
    node.change("t", 0, leader=2, leader_epoch=1)
    assert len(acks.moved(PLACES[0], node.broker.partitions)) == 1
    take_offline(node.broker.partitions, node.replica(index=1))
    assert len(acks.moved(PLACES[1], node.broker.partitions)) == 1
