"""A connection that ends tells of the brokers whose last heartbeats came over it."""

from __future__ import annotations

from tests.core.controller.world import World

from anabranch.core.controller.brokers.connections import HeartbeatConnections


def test_only_the_last_connection_of_a_registered_epoch_tells_of_a_broker():
    world, connections = World(), HeartbeatConnections()
    world.register(1)
    world.register(2)
    brokers = world.image.brokers
    epochs = {each: brokers[each].epoch for each in (1, 2)}
    connections.heard(brokers, "old", 1, epochs[1])
    connections.heard(brokers, "new", 1, epochs[1])
    connections.heard(brokers, "new", 2, epochs[2])
    connections.heard(brokers, "of an earlier life", 2, epochs[2] - 1)
    connections.heard(brokers, "of a stranger", 3, 7)
    for nothing in ("old", "of an earlier life", "of a stranger"):
        assert connections.closed(nothing) == []
    assert connections.closed("new") == [(1, epochs[1]), (2, epochs[2])]
    assert connections.closed("new") == []
