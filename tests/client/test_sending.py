"""What is sent at once, under uvloop, where transports keep what they are given for a while."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, closing, suppress
from types import SimpleNamespace

import pytest

from anabranch.client.sending import NO_DESCRIPTOR, descriptor_of, write_at_once

uvloop = pytest.importorskip("uvloop")

PATIENCE_S = 5.0
PIECE_BYTES = 16_384


def under_uvloop(test):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@asynccontextmanager
async def connected():
    """A transport of uvloop, and the other end, which blocks."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        loop = asyncio.get_running_loop()
        made = loop.create_connection(asyncio.Protocol, *listener.getsockname())
        transport, _ = await made
        peer, _ = listener.accept()
    with closing(peer):
        peer.settimeout(PATIENCE_S)
        try:
            yield transport, peer
        finally:
            transport.abort()


def test_what_is_written_is_there_before_the_loop_goes_on():
    async def test():
        async with connected() as (transport, peer):
            write_at_once(transport, descriptor_of(transport), b"at once")
            assert peer.recv(100) == b"at once"

    under_uvloop(test)


def test_what_a_slow_reader_gets_is_whole_and_in_order():
    async def test():
        async with connected() as (transport, peer):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
            descriptor, sent = descriptor_of(transport), b""
            for number in range(100_000):
                piece = number.to_bytes(4) * (PIECE_BYTES // 4)
                write_at_once(transport, descriptor, piece)
                sent += piece
                if transport.get_write_buffer_size() > 4 * PIECE_BYTES:
                    break
            # There is room in the kernel again before the transport writes what it was given.
            come = read_what_is_there(peer)
            write_at_once(transport, descriptor, b"last")
            sent += b"last"
            read = asyncio.create_task(asyncio.to_thread(read_all, peer, len(sent) - len(come)))
            come += await read
            assert come == sent

    under_uvloop(test)


def read_what_is_there(peer):
    peer.setblocking(False)
    come = bytearray()
    with suppress(BlockingIOError):
        while True:
            come += peer.recv(1 << 20)
    peer.settimeout(PATIENCE_S)
    return come


def read_all(peer, size):
    come = bytearray()
    while len(come) < size:
        come += peer.recv(size - len(come))
    return come


def test_nothing_is_written_to_who_has_the_descriptor_of_a_closed_connection():
    async def test():
        async with connected() as (transport, _peer):
            descriptor = descriptor_of(transport)
            transport.abort()
            held = []
            for _ in range(100):  # the loop closes it in a later round
                await asyncio.sleep(0)
                held += socket.socketpair()
                if descriptor in map(socket.socket.fileno, held):
                    break
            others = {each.fileno(): held[at ^ 1] for at, each in enumerate(held)}
            other = others[descriptor]
            with suppress(RuntimeError):  # uvloop says that it is closed
                write_at_once(transport, descriptor, b"for another")
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)
            for each in held:
                each.close()

    under_uvloop(test)


def test_other_transports_write_for_themselves():
    written = []
    transport = SimpleNamespace(write=written.append)
    assert descriptor_of(transport) == NO_DESCRIPTOR
    write_at_once(transport, NO_DESCRIPTOR, b"as it does")
    assert written == [b"as it does"]
