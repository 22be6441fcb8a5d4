"""A link that is slow, silent, deaf or broken: what the ends of a connection notice of it."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from bench.slow_link import WELL, Condition, SlowLink, _reset

SECONDS = 10.0
SOON_SECONDS = 0.2


class Echo:
    """Gives back what it is sent, and keeps it."""

    def __init__(self) -> None:
        self.heard = b""

    async def serve(self, reader, writer):
        while piece := await reader.read(1 << 16):
            self.heard += piece
            writer.write(piece)
        writer.close()


@pytest.fixture
async def echo():
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.link = SlowLink(server.sockets[0].getsockname()[1])
    await echo.link.start()
    yield echo
    server.close()


async def dial(echo):
    return await asyncio.open_connection("127.0.0.1", echo.link.port)


async def answer(reader, count) -> bytes:
    async with asyncio.timeout(SECONDS):
        return await reader.readexactly(count)


async def hears_nothing(reader) -> bool:
    try:
        async with asyncio.timeout(SOON_SECONDS):
            await reader.readexactly(1)
    except TimeoutError:
        return True
    return False


async def test_bytes_pass_in_order_and_an_end_is_told(echo):
    reader, writer = await dial(echo)
    sent = bytes(range(256)) * 2000
    writer.write(sent)
    assert await answer(reader, len(sent)) == sent
    writer.write_eof()
    assert await reader.read() == b""


async def test_a_slow_link_delays_each_answer_and_bounds_the_rate(echo):
    reader, writer = await dial(echo)
    loop = asyncio.get_running_loop()
    echo.link.become(Condition(delay_ms=100))
    begin_s = loop.time()
    writer.write(b"x")
    await answer(reader, 1)
    assert loop.time() - begin_s >= 0.2, "once there, once back"
    echo.link.become(Condition(bytes_per_second=1_000_000))
    begin_s = loop.time()
    writer.write(bytes(100_000))
    await answer(reader, 100_000)
    assert loop.time() - begin_s >= 0.19, "both directions together"


async def test_what_a_silent_link_held_passes_when_it_speaks_again(echo):
    before, after = await dial(echo), None
    echo.link.become(Condition(is_silent=True))
    after = await dial(echo)
    for number, (_, writer) in enumerate((before, after)):
        writer.write(b"%d" % number)
    assert await hears_nothing(before[0]) and await hears_nothing(after[0])
    assert echo.heard == b""
    echo.link.become(WELL)
    assert await answer(before[0], 1) == b"0"
    assert await answer(after[0], 1) == b"1"


async def test_a_deaf_link_does_what_is_asked_and_loses_the_answer(echo):
    reader, writer = await dial(echo)
    echo.link.become(Condition(is_deaf=True))
    writer.write(b"do it")
    assert await hears_nothing(reader)
    assert echo.heard == b"do it"
    echo.link.become(WELL)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await answer(reader, 1)


async def test_a_broken_link_resets_what_is_open_and_what_comes(echo):
    reader, writer = await dial(echo)
    echo.link.become(Condition(is_broken=True))
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await answer(reader, 1)
    reader, writer = await dial(echo)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await answer(reader, 1)
    echo.link.become(WELL)
    reader, writer = await dial(echo)
    writer.write(b"y")
    assert await answer(reader, 1) == b"y"


def test_a_connection_that_is_gone_is_cut_without_a_fault():
    """Also by uvloop, whose socket of a closed connection raises another fault."""

    async def cut():
        ends = asyncio.Queue()
        server = await asyncio.start_server(lambda *pair: ends.put_nowait(pair), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for each in (writer, (await ends.get())[1]):
            each.transport.abort()
            await asyncio.sleep(0.05)
            _reset(each)
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cut())
