"""What goes wrong in a node while it serves one connection ends no other, and is always answered."""

from __future__ import annotations

import pytest
from tests.core.node.link_kit import Asked, Broken, World, frame_of

from anabranch.core.errors import ErrorCode


def fail(*_what, **_named):
    raise Broken("on purpose")


def answered(world, link):
    world.take(link, 1 << 20)
    return [number for number, _ in link.answers()]


@pytest.mark.parametrize(
    "kind",
    ["near", "far", "both", "propose", "forward", "then near", "then far", "then propose"],
)
def test_what_cannot_be_begun_is_a_fault_of_its_request(kind):
    """No thread for a read, say: the request is answered, also when it had waited before, and so is
    who is woken behind it."""
    world = World()
    world.refusing = 1
    channel, link, said = world.connect()
    other, other_link, _ = world.connect()
    world.receive(channel, frame_of(1, Asked(kind)))
    world.receive(channel, frame_of(2, Asked("at once")))
    world.receive(other, frame_of(3, Asked("wait")))
    world.wake()
    assert answered(world, link) == [1, 2]
    assert answered(world, other_link) == [3]
    code = ErrorCode.UNKNOWN_SERVER_ERROR.to_bytes(2, "big", signed=True)
    assert code in bytes(link.taken[:16])
    assert not said and not channel.closing
    assert [type(fault) for fault in world.unexpected_faults] == [Broken]
    while world.calls:  # what was begun ends too late
        world.end_call()
    assert answered(world, link) == [1, 2]
    assert world.memory.held_bytes == 0 and not world.requests.purgatory.by_key


def test_who_cannot_be_asked_about_a_broker_is_a_fault_of_the_request():
    """The authorizer is asked before the handler runs."""
    world = World()
    world.of_broker = fail
    channel, link, said = world.connect()
    world.receive(channel, frame_of(1, Asked("at once")), frame_of(2, Asked("at once")))
    assert answered(world, link) == [1, 2]
    assert not said and len(world.unexpected_faults) == 2


def test_a_connection_that_cannot_be_flushed_ends_alone():
    """All that one step woke are answered but the one whose link fails, which says why."""
    world = World()
    connections = [world.connect() for _ in range(3)]
    for number, (channel, _, _) in enumerate(connections):
        world.receive(channel, frame_of(number, Asked("wait")))
    broken, broken_link, said = connections[0]
    broken_link.reads = False
    broken._reading = False
    broken_link.read = fail
    world.wake()
    assert broken.closing and broken_link.closed == "at once"
    assert len(said) == 1 and said[0][1] and "on purpose" in said[0][0]
    for number, (channel, link, why) in enumerate(connections[1:], start=1):
        assert answered(world, link) == [number]
        assert not channel.closing and not why
        world.receive(channel, frame_of(9, Asked("at once")))
        assert answered(world, link) == [number, 9]
