"""Whether somebody is there, asked of the machine."""

from __future__ import annotations

import asyncio

from node_kit import free_port

from anabranch.core.controller.hints import Answer
from anabranch.server.dialling import dial


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
