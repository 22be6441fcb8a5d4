"""Answers of which parts are lent: whole, in order and bounded, over real loopback sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest
from server_kit import SECONDS, eventually, handler

from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from anabranch.server import link, loans
from anabranch.server.loans import FileLoan, Lender

VERSION = 12
SIZE = 24 << 20
"""More than the sockets of both sides hold."""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A large file without a pattern."""
    path = tmp_path_factory.mktemp("loans") / "segment"
    path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    with path.open("rb+") as opened:
        yield opened


@pytest.fixture
def lender(monkeypatch):
    monkeypatch.setattr(loans, "LENT_BYTES", 0)
    monkeypatch.setattr(Lender, "is_in_memory", lambda *_range: True)
    return Lender()


def answers(lender, file, *parts):
    """A handler: the request's `max_bytes` says which of the parts it gets."""

    def run(_node, request, _now_ms):
        data = [
            PartitionData(
                partition_index=index,
                records=each if isinstance(each, bytes) else lender.lend(file.fileno(), *each),
                aborted_transactions=None,
            )
            for index, each in enumerate(parts[request.body.max_bytes])
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])

    return handler(1, run)


def content(file, each):
    return each if isinstance(each, bytes) else os.pread(file.fileno(), each[1], each[0])


def ask(client, number, which=0, version=VERSION):
    client.send(number, FetchRequest(max_bytes=which, topics=[]), version)


async def received(client, number, file, parts, version=VERSION):
    correlation_id, answer = await client.answer(1, version)
    assert correlation_id == number
    found = [each.records for each in answer.responses[0].partitions]
    assert [bytes(each) for each in found] == [content(file, each) for each in parts]


def sender_of(service):
    [connection] = service.acceptor.connections
    return connection.link._sender


async def stalled(service):
    """Wait until the socket takes no more."""
    await eventually(lambda: sender_of(service) is not None)
    left = -1
    while left != sender_of(service).left_bytes:
        left = sender_of(service).left_bytes
        await asyncio.sleep(0.05)
    return left


@pytest.mark.parametrize(
    "parts",
    [
        [(5, 70_000)],
        [b"a" * 30_000, (0, 1), (1, 300_000), b"", b"b" * 100_000, (77, 3_000_000), b"c"],
        [(number * 65_000, 65_000) for number in range(100)],
        [(1, SIZE - 1)],
    ],
)
async def test_answers_come_whole(serve, file, lender, parts):
    service = await serve(answers(lender, file, parts))
    client = await service.connect()
    for number in range(3):
        ask(client, number)
        await received(client, number, file, parts)
    assert lender.count == 0


@pytest.mark.parametrize("version", API_KEYS[1].versions)
@pytest.mark.parametrize(
    "parts",
    [[(0, 1)], [(0, 300)], [b"", (7, 100), b""], [(7, 0)], [b"x", (7, 0), (0, 90_000), (9, 0)]],
)
async def test_answers_come_whole_in_each_version_whatever_is_lent(
    serve, file, lender, version, parts
):
    """Small, large and empty parts, at the end or before it."""
    service = await serve(answers(lender, file, parts))
    client = await service.connect()
    for number in range(3):
        ask(client, number, version=version)
        await received(client, number, file, parts, version)
    assert lender.count == 0


async def test_many_answers_come_in_order_whatever_they_consist_of(serve, file, lender):
    kinds = [[(9, 2_000_000)], [b"small"], [b"x" * 500_000], [(3, 70_000), b"y" * 20_000]]
    service = await serve(answers(lender, file, *kinds))
    client = await service.connect()
    for number in range(60):
        ask(client, number, number * 7 % 4)
    for number in range(60):
        await received(client, number, file, kinds[number * 7 % 4])
    assert lender.count == 0


async def test_a_slow_reader_costs_no_memory(serve, file, lender):
    parts = [(0, SIZE)]
    service = await serve(answers(lender, file, parts))
    client = await service.connect()
    client.reader._limit = 1024
    client.writer.transport.pause_reading()
    for number in range(20):
        ask(client, number)
    left = await stalled(service)
    [connection] = service.acceptor.connections
    assert 0 < left <= service.acceptor.statistics()["unsent_bytes"]
    assert connection._transport.get_write_buffer_size() == 0
    assert service.requests.routes[0].requests == 1  # the others wait for their turn
    client.reader._limit = 1 << 24
    client.writer.transport.resume_reading()
    for number in range(20):
        await received(client, number, file, parts)


async def test_what_leaves_memory_meanwhile_is_brought_back_in_a_thread(
    serve, file, lender, monkeypatch
):
    service = await serve(answers(lender, file, [(0, SIZE)]))
    client = await service.connect()
    client.writer.transport.pause_reading()
    ask(client, 1)
    await stalled(service)
    warmed = []
    real = FileLoan.warm
    monkeypatch.setattr(Lender, "is_in_memory", lambda *_range: False)
    monkeypatch.setattr(
        FileLoan, "warm", lambda loan, start: (warmed.append(start), real(loan, start))
    )
    client.writer.transport.resume_reading()
    await received(client, 1, file, [(0, SIZE)])
    assert warmed


async def test_a_lost_client_gives_back_what_it_was_lent(serve, file, lender):
    service = await serve(answers(lender, file, [(0, SIZE)]))
    client = await service.connect()
    client.writer.transport.pause_reading()
    handles = len(os.listdir("/proc/self/fd"))
    ask(client, 1)
    await stalled(service)
    client.writer.transport.abort()
    await eventually(lambda: not service.acceptor.connections)
    await eventually(lambda: lender.count == 0)
    await eventually(lambda: len(os.listdir("/proc/self/fd")) < handles)


@pytest.mark.own_faults
async def test_a_part_that_cannot_be_sent_ends_the_connection(serve, tmp_path, lender):
    (tmp_path / "short").write_bytes(b"x" * 100_000)
    with (tmp_path / "short").open("rb+") as short:
        service = await serve(answers(lender, short, [(0, 200_000)]))
        client = await service.connect()
        ask(client, 1)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.frame()
    await eventually(lambda: not service.acceptor.connections)
    assert lender.count == 0
    assert service.serving.own_faults.counts["connection"] == 1


@pytest.mark.own_faults
async def test_a_part_that_the_disk_refuses_later_ends_the_connection(
    serve, file, lender, monkeypatch
):
    def refuse(_loan, _start):
        raise OSError("the disk is broken on purpose")

    service = await serve(answers(lender, file, [(0, SIZE)]))
    client = await service.connect()
    client.writer.transport.pause_reading()
    ask(client, 1)
    await stalled(service)
    monkeypatch.setattr(Lender, "is_in_memory", lambda *_range: False)
    monkeypatch.setattr(FileLoan, "warm", refuse)
    client.writer.transport.resume_reading()
    with pytest.raises(asyncio.IncompleteReadError):
        await client.frame()
    await eventually(lambda: lender.count == 0)


async def test_a_client_that_sends_no_more_gets_the_whole_answer(serve, file, lender):
    service = await serve(answers(lender, file, [(0, SIZE)]))
    client = await service.connect()
    client.writer.transport.pause_reading()
    ask(client, 1)
    await stalled(service)
    client.writer.write_eof()
    await asyncio.sleep(0.05)
    client.writer.transport.resume_reading()
    await received(client, 1, file, [(0, SIZE)])
    assert await client.ended()


async def test_a_hangup_comes_after_what_is_on_its_way(serve, file, lender):
    service = await serve(answers(lender, file, [(0, SIZE)]))
    client = await service.connect()
    client.writer.transport.pause_reading()
    ask(client, 1)
    await stalled(service)
    [connection] = service.acceptor.connections
    connection.channel.hang_up("on purpose")
    client.writer.transport.resume_reading()
    await received(client, 1, file, [(0, SIZE)])
    assert await client.ended()


async def asked(service, client, number, which):
    """Ask, and wait until the request was run."""
    ask(client, number, which)
    await eventually(lambda: sum(each.requests for each in service.requests.routes) > number)


async def test_what_the_transport_has_yet_to_send_is_not_overtaken(serve, file, lender):
    kinds = [[b"x" * (1 << 20)], [(0, 1 << 20)]]
    service = await serve(answers(lender, file, *kinds))
    client = await service.connect()
    client.reader._limit = 1024
    client.writer.transport.pause_reading()
    number = 0
    await asked(service, client, number, 0)
    [connection] = service.acceptor.connections
    while not connection.link.unsent_bytes:  # the socket takes more
        number += 1
        await asked(service, client, number, 0)
        await asyncio.sleep(0.05)
    await asked(service, client, number + 1, 1)
    client.reader._limit = 1 << 24
    client.writer.transport.resume_reading()
    for each in range(number + 1):
        await received(client, each, file, kinds[0])
    await received(client, number + 1, file, kinds[1])


async def test_without_room_for_a_handle_the_transport_sends(serve, file, lender, monkeypatch):
    parts = [(0, 1 << 20), b"small", (5, 1 << 20)]
    service = await serve(answers(lender, file, parts))
    client = await service.connect()

    def full(*_arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(link, "LoanSender", full)
    ask(client, 0)
    await received(client, 0, file, parts)


async def read_slowly(client, size_bytes):
    """Bytes that have come, a few every hundredth of a second; until the end or so many."""
    loop, count = asyncio.get_running_loop(), 0
    async with asyncio.timeout(SECONDS):
        while count < size_bytes:
            came = len(await loop.sock_recv(client, 1 << 16))
            if not came:
                break
            count += came
            await asyncio.sleep(0.01)
    return count


@pytest.mark.parametrize("is_lent", [True, False])
async def test_who_reads_slowly_but_steadily_is_not_idle(serve, file, lender, is_lent):
    """One answer takes several times `connections.max.idle.ms`; who reads no more is let go."""
    size = 8 << 20
    service = await serve(
        answers(lender, file, [(0, size) if is_lent else content(file, (0, size))]),
        connections_max_idle_ms=300,
        socket_send_buffer_bytes=1 << 16,
        static={"socket.send.buffer.bytes": str(1 << 16)},
    )
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", service.port))
        request = frame_request(1, "slow", FetchRequest(max_bytes=0, topics=[]), VERSION)
        await loop.sock_sendall(client, b"".join(map(bytes, request)))
        begin = loop.time()
        assert await read_slowly(client, size) >= size
        assert loop.time() - begin > 4 * 0.3
        await loop.sock_sendall(client, b"".join(map(bytes, request)))
        await read_slowly(client, size // 4)
        await eventually(lambda: not service.acceptor.connections)
