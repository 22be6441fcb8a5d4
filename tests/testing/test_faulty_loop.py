"""B6: links between nodes, held where they leave a node."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch.testing.faults import CONTROLLER, REPLICATION, NodeFaults
from anabranch.testing.faulty_loop import FaultyLoop, Link

PEER = 2
MOMENT_SECONDS = 0.05
"""Long enough for the loopback to pass what nothing holds."""


class Server:
    """The other node: keeps what arrives, and whether it has ended."""

    def __init__(self):
        self.received = b""
        self.ended = asyncio.Event()
        self.writer = None

    async def serve(self, reader, writer):
        self.writer = writer
        while more := await reader.read(1 << 16):
            self.received += more
        self.ended.set()

    async def has(self, expected):
        while self.received != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def on_a_loop(work):
    """Run `work(faults, server, port)` on the loop of a node whose peer listens at a port."""
    faults, peers = NodeFaults.private(), {}

    async def run():
        server = Server()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        peers[port] = PEER
        async with asyncio.timeout(20):
            await work(faults, server, port)
        listening.close()

    with asyncio.Runner(loop_factory=lambda: FaultyLoop(faults, peers)) as runner:
        runner.run(run())


def cut(faults, outgoing=True, incoming=True):
    faults.cut(PEER, outgoing=outgoing, incoming=incoming)


def heal(faults):
    faults.heal_links([PEER])


async def used(server, port):
    """A connection to the peer on which a byte has passed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"1")
    await server.has(b"1")
    return reader, writer


async def nothing(reader):
    """Whether nothing arrives, not even an end."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), MOMENT_SECONDS)


def test_bytes_behind_a_cut_wait_in_both_directions_and_keep_their_order():
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        cut(faults)
        buffer = bytearray(b"2")
        writer.write(buffer)
        buffer[:] = b"x"
        writer.writelines([b"3", b"4"])
        server.writer.write(b"a" * 200_000)
        await nothing(reader)
        assert server.received == b"1"
        heal(faults)
        writer.write(b"5")
        await server.has(b"12345")
        assert await reader.readexactly(200_000) == b"a" * 200_000
        server.writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        writer.close()
        await server.ended.wait()

    on_a_loop(work)


def test_a_cut_may_be_of_one_kind_of_connection_alone():
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        faults.cut(PEER, outgoing=True, incoming=True, links=CONTROLLER)
        writer.write(b"2")
        await server.has(b"12")
        faults.cut(PEER, outgoing=True, incoming=True, links=REPLICATION)
        server.writer.write(b"a")
        await nothing(reader)
        heal(faults)
        assert await reader.readexactly(1) == b"a"
        writer.close()
        await server.ended.wait()

    on_a_loop(work)


def test_the_end_of_a_connection_does_not_pass_a_cut():
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        cut(faults)
        server.writer.write(b"last")
        server.writer.close()
        await nothing(reader)
        heal(faults)
        assert await reader.read() == b"last"
        writer.close()

    on_a_loop(work)


@pytest.mark.parametrize("way", ["close", "abort"])
def test_who_closes_behind_a_cut_is_done_and_the_other_side_is_told_later(way):
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        cut(faults)
        getattr(writer.transport, way)()
        await writer.wait_closed()
        assert writer.transport.is_closing()
        assert await reader.read() == b""
        await asyncio.sleep(MOMENT_SECONDS)
        assert not server.ended.is_set()
        heal(faults)
        await server.ended.wait()

    on_a_loop(work)


def test_who_closes_needs_no_byte_of_the_other_side_to_be_done():
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        cut(faults, outgoing=False)
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
        await server.ended.wait()

    on_a_loop(work)


def test_a_dial_hangs_until_the_link_heals():
    async def work(faults, _server, port):
        cut(faults, outgoing=False)
        dial = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
        await asyncio.sleep(MOMENT_SECONDS)
        assert not dial.done()
        heal(faults)
        _, writer = await dial
        writer.close()

    on_a_loop(work)


def test_a_cut_of_one_direction_leaves_the_other():
    async def work(faults, server, port):
        reader, writer = await used(server, port)
        cut(faults, incoming=False)
        writer.write(b"2")
        server.writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        await asyncio.sleep(MOMENT_SECONDS)
        assert server.received == b"1"
        heal(faults)
        await server.has(b"12")
        writer.close()

    on_a_loop(work)


def test_a_delay_holds_everything_for_its_time():
    async def work(faults, server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        faults.delay(PEER, 60)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        writer.write(b"1")
        await server.has(b"1")
        assert loop.time() - begun >= 0.06
        server.writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        assert loop.time() - begun >= 0.12
        writer.write(b"2")
        faults.delay(PEER, 0)
        writer.write(b"3")  # does not overtake
        await server.has(b"123")
        writer.close()

    on_a_loop(work)


class Filled(asyncio.BufferedProtocol):
    """A protocol that offers a small buffer of its own."""

    def __init__(self):
        self.received = b""
        self.buffer = bytearray(3)

    def get_buffer(self, _sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.received += self.buffer[:nbytes]


def test_a_protocol_with_a_buffer_of_its_own_is_filled():
    async def work(_faults, server, port):
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Filled, "127.0.0.1", port)
        assert isinstance(transport, Link)
        transport.write(b"1")
        await server.has(b"1")
        server.writer.write(b"abcdefgh")
        while protocol.received != b"abcdefgh":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        transport.close()

    on_a_loop(work)


def test_whatever_works_for_the_loop_is_known_to_who_kills_the_node():
    async def work(_faults, _server, _port):
        loop = asyncio.get_running_loop()
        own = ThreadPoolExecutor()
        workers = [
            await loop.run_in_executor(each, threading.current_thread) for each in (None, own)
        ]
        for each in loop.executors:
            each.shutdown()
        assert not [each for each in workers if each.is_alive()]

    on_a_loop(work)


def test_only_connections_to_other_nodes_are_links():
    async def work(faults, server, _port):
        cut(faults)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert not isinstance(writer.transport, Link)
        writer.write(b"1")
        await server.has(b"1")
        writer.close()
        listening.close()

    on_a_loop(work)
