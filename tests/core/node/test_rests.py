"""Answers tell for how long their connection rests, and it rests exactly that long."""

from __future__ import annotations

import struct

import pytest
from tests.core.node.link_kit import Asked, World, frame_of

from anabranch.core.api.registry import handlers
from anabranch.core.broker.gate import Charge
from anabranch.core.node.outcomes import told_rest_ms
from anabranch.core.node.route import Route
from anabranch.core.wire.frame import frame_response, read_response
from anabranch.core.wire.messages.alter_client_quotas import AlterClientQuotasResponse
from anabranch.core.wire.messages.create_topics import CreateTopicsResponse
from anabranch.core.wire.messages.describe_cluster import DescribeClusterResponse
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeResponse


def rests(world, link):
    """(correlation id, throttle time) of the answers that were taken."""
    world.take(link, 100_000)
    found, at = [], 0
    while at < len(link.taken):
        size, number, rest_ms = struct.unpack_from(">iixi", link.taken, at)
        found.append((number, rest_ms))
        at += 4 + size
    return found


@pytest.mark.parametrize("kind", ["at once", "wait", "near", "propose"])
def test_an_answer_tells_how_long_its_connection_rests(kind):
    world = World()
    channel, link, _ = world.connect()
    world.quota.rest_ms = 70
    world.receive(channel, frame_of(1, Asked(kind)))
    while world.calls:
        world.end_call()
    world.pass_time(100)
    assert rests(world, link) == [(1, 70)]
    session = channel.session
    assert session.muted_until_ms - world.clock_ms in range(-100, 71)
    assert {charge for charge, _ in world.quota.charged} <= {Charge.REQUEST, Charge.FETCH}


def test_the_next_request_is_run_when_the_rest_is_over_and_not_before():
    world = World()
    channel, link, _ = world.connect()
    world.quota.rest_ms = 70
    world.receive(channel, frame_of(1, Asked("at once")))
    world.quota.rest_ms = 0
    world.receive(channel, frame_of(2, Asked("at once")))
    world.pass_time(69)
    assert rests(world, link) == [(1, 70)]
    world.pass_time(1)
    world.turn(10)
    assert rests(world, link) == [(1, 70), (2, 0)]


def test_a_connection_that_only_rests_is_idle_and_what_it_held_is_given_back():
    """A rest may last for weeks, and its client may be gone: nothing is read meanwhile."""
    world = World()
    channel, link, _ = world.connect()
    world.quota.rest_ms = 2**31 - 1
    world.receive(channel, frame_of(1, Asked("wait")))
    assert channel.is_waited_for
    world.news = True
    world.wake()
    world.receive(channel, *[frame_of(number, Asked("at once")) for number in (2, 3, 4)])
    assert rests(world, link) == [(1, 2**31 - 1)]
    assert world.memory.held_bytes and not channel.is_waited_for
    world.step(channel.lost)
    assert not world.memory.held_bytes


def test_what_brokers_ask_of_each_other_rests_for_nothing():
    world = World()
    world.of_broker = lambda _body: True
    channel, link, _ = world.connect()
    world.quota.rest_ms = 70
    world.receive(channel, frame_of(1, Asked("at once")))
    assert rests(world, link) == [(1, 0)]
    assert world.quota.charged == []


@pytest.mark.parametrize(
    ("key", "response"),
    [(19, CreateTopicsResponse(1234)), (49, AlterClientQuotasResponse(1234)),
     (60, DescribeClusterResponse(1234))],
)  # fmt: skip
def test_the_rest_in_a_forwarded_answer_is_found_in_all_versions(key, response):
    handler = handlers()[key]
    for version in handler.versions:
        route = Route(handler, handler.broker, version)
        answer = b"".join(map(bytes, frame_response(7, response, version)))[4:]
        assert told_rest_ms(route, answer) == 1234
        assert told_rest_ms(route, answer[:4]) == 0


def test_each_answer_that_can_tell_of_a_rest_does_wherever_the_field_stands():
    for handler in handlers().values():
        run = handler.broker or handler.controller
        for version in handler.versions:
            route = Route(handler, run, version)
            answer = route.response()
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = 1234
            frame = b"".join(map(bytes, route.frame(7, answer)))[4:]
            _, found = read_response(frame, route.response, version)
            assert route.tells_rest == (getattr(found, "throttle_time_ms", 0) == 1234)


def test_an_answer_without_a_rest_has_none():
    assert told_rest_ms(None, bytes(20)) == 0
    assert not hasattr(SaslHandshakeResponse(), "throttle_time_ms")
