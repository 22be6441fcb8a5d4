"""Whether somebody is there, asked of the machine."""

from __future__ import annotations

import asyncio

import pytest
from node_kit import free_port
from server_kit import eventually
from tests.core.controller.world import World

from anabranch.core.controller.hints import Answer
from anabranch.core.wire.messages.broker_registration import Listener
from anabranch.server import dialling
from anabranch.server.dialling import Probing, dial


async def test_who_listens_and_holds_the_connection_is_there() -> None:
    server = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await dial("127.0.0.1", port) is Answer.SAME
    server.close()


async def test_nobody_listens() -> None:
    assert await dial("127.0.0.1", free_port()) is Answer.REFUSED


async def test_a_name_that_no_host_can_have_says_nothing() -> None:
    """A broker may have registered it: the probes of others go on."""
    assert await dial("a..b", free_port()) is Answer.SILENCE


async def test_a_listener_that_dies_after_its_connections_is_found_gone() -> None:
    dialled = []

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(True)
        writer.transport.abort()
        server.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await dial("127.0.0.1", port) is Answer.REFUSED
    assert dialled


@pytest.mark.parametrize("heard", [False, True])
async def test_a_listener_that_outlives_its_connections_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """Unless the broker is heard meanwhile: it had connected anew."""
    server = await asyncio.start_server(lambda reader, _: reader.read(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    world = World()
    monkeypatch.setattr(dialling, "steady_ms", lambda: world.now_ms)
    monkeypatch.setattr(dialling, "LATER_S", 0.05)
    world.register(1, listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=port)])
    world.beat(1)
    world.start(2)
    world.pass_time(1)
    probing = Probing(world.controller, world.commit_result)
    world.controller.connection_closed(1, world.image.brokers[1].epoch, world.now_ms)
    probing.begin()
    (first,) = probing._dials
    await asyncio.sleep(dialling.STAYS_S)
    server.close()
    if heard:
        world.now_ms += 1
        world.beat(1)
    await first
    if not heard:
        await eventually(lambda: world.image.brokers[1].fenced)
    await eventually(lambda: not probing._dials)
    assert world.image.brokers[1].fenced is not heard
