"""Clients that ask for much, and one that asks for little beside them, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from server_kit import Client, eventually, handler

from anabranch.core.outcome import Wait
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.core.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

HEAVY_SECONDS = 0.004
LONGEST_SECONDS = 0.5
LITTLE, MUCH = 60, 16
"""The API keys: DescribeCluster is answered at once, ListGroups keeps the loop busy."""


def little(_world, _request, _now_ms):
    return DescribeClusterResponse(brokers=[])


def much(_world, _request, _now_ms):
    until = time.perf_counter() + HEAVY_SECONDS
    while time.perf_counter() < until:
        pass
    return ListGroupsResponse(groups=[])


def frames(count):
    return b"".join(
        b"".join(map(bytes, frame_request(number, "flood", ListGroupsRequest(), 4)))
        for number in range(count)
    )


def longest_seconds(begun):
    """How long a client may wait: on a machine with much else to do, everything takes longer."""
    return max(LONGEST_SECONDS, (time.perf_counter() - begun) / 4)


async def ping(client, number):
    begun = time.perf_counter()
    client.send(number, DescribeClusterRequest(), 1)
    await client.answer(LITTLE, 1)
    return time.perf_counter() - begun


@pytest.mark.parametrize(("clients", "requests"), [(1, 600), (100, 6), (600, 1)])
async def test_a_client_does_not_wait_for_all_that_others_have_sent(serve, clients, requests):
    """What others have sent takes 2.4 s: at once, of many, and on connections that are new."""
    service = await serve(
        handler(LITTLE, little), handler(MUCH, much), max_connections=1000,
        max_connections_per_ip=1000,
    )  # fmt: skip
    light = await service.connect()
    await ping(light, 0)
    others = [await service.connect() for _ in range(clients)]
    for other in others:
        other.writer.write(frames(requests))
    waits = []
    number = 1
    begun = time.perf_counter()
    while sum(each.requests for each in service.requests.routes) - number < clients * requests:
        waits.append(await ping(light, number))
        await asyncio.sleep(0.005)
        number += 1
    assert len(waits) > 10
    assert max(waits) < longest_seconds(begun)
    for other in others:
        for each in range(requests):
            assert (await other.answer(MUCH, 4))[0] == each


async def test_what_is_behind_a_request_that_was_alone_waits_for_its_turn(serve):
    """A wait ends in the midst of another connection's step: what it held up is not run there."""
    ready = {}

    def alone(_world, request, now_ms):
        if request.correlation_id:
            return much(_world, request, now_ms)
        return Wait(
            ("key",), now_ms + 60_000, lambda _now, _expired: ready.get("answer"), holds_up=True
        )

    service = await serve(handler(LITTLE, little), handler(MUCH, alone))
    light, other = await service.connect(), await service.connect()
    other.writer.write(frames(400))
    await ping(light, 0)
    await eventually(lambda: any(each.channel._queue for each in service.acceptor.connections))
    ready["answer"] = ListGroupsResponse(groups=[])
    begun = time.perf_counter()
    service.serving.wake("key")
    assert time.perf_counter() - begun < LONGEST_SECONDS
    assert await ping(light, 1) < 2 * LONGEST_SECONDS
    for each in range(400):
        assert (await other.answer(MUCH, 4))[0] == each


async def test_waits_that_end_at_the_same_time_are_answered_in_several_turns(serve):
    """What each costs when its time is over is as much as when it came."""
    ends_ms = []

    def late(_world, request, now_ms):
        ends_ms.append(ends_ms[0] if ends_ms else now_ms + 1_000)
        return Wait(
            ("key",), ends_ms[0],
            lambda now, expired: much(None, request, now) if expired else None,
        )  # fmt: skip

    service = await serve(handler(LITTLE, little), handler(MUCH, late))
    light, other = await service.connect(), await service.connect()
    other.writer.write(frames(400))
    waits = []
    await ping(light, 0)
    begun = time.perf_counter()
    while len(service.requests.purgatory):
        waits.append(await ping(light, 1))
    assert max(waits) < longest_seconds(begun)
    for each in range(400):
        assert (await other.answer(MUCH, 4))[0] == each


async def test_garbage_as_fast_as_it_can_be_sent_delays_no_one(serve):
    """Each connection sends another kind of it, and is hung up."""
    service = await serve(handler(LITTLE, little), handler(MUCH, much))
    light = await service.connect()
    stops = asyncio.Event()

    async def flood(rubbish):
        while not stops.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(rubbish)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

    kinds = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 60_000,
        (b"\x00\x00\x00\x08" + b"\x7f" * 8) * 5_000,
        frames(3) + b"\x00\x00\x00\x05oh no",
    ]
    begun = time.perf_counter()
    floods = [asyncio.create_task(flood(each)) for each in kinds]
    waits = [await ping(light, number) for number in range(400)]
    stops.set()
    await asyncio.gather(*floods)
    assert max(waits) < longest_seconds(begun)
    assert service.acceptor.bad_total > len(kinds)


async def test_who_leaves_while_in_line_is_passed_over(serve):
    service = await serve(handler(LITTLE, little), handler(MUCH, much))
    light = await service.connect()
    for _ in range(20):
        other = await service.connect()
        other.writer.write(frames(50))
        assert isinstance(other, Client)
        await ping(light, 1)
        other.writer.close()
    await eventually(lambda: len(service.acceptor.connections) == 1)
    (route,) = (each for each in service.requests.routes if each.api_key == MUCH)
    count = route.requests
    await ping(light, 2)
    assert route.requests == count
