"""Frames in, answers out, in order and bounded, over real loopback sockets."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import time
from collections import Counter

import pytest
from server_kit import SECONDS, eventually, handler

from anabranch.core.controller.result import Result
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.node.channel import QUEUED_HIGH_BYTES
from anabranch.core.outcome import Hangup, NoAnswer, Propose, Wait
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from anabranch.server.listener import BAD_LINES_A_SECOND
from anabranch.server.receive_memory import SHARED_BUFFER_BYTES

VERSION = 9


def produce(records, acks=1):
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def echo(_node, request, _now_ms):
    """Answers a produce request with the size of what it brought."""
    records = request.body.topic_data[0].partition_data[0].records
    answer = PartitionProduceResponse(index=records[0], base_offset=len(records))
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])])


def run_without_answer(_node, _request, _now_ms):
    """Takes long enough that a turn has no time for two hundred."""
    until = time.perf_counter() + 0.0002
    while time.perf_counter() < until:
        pass
    return NoAnswer()


def offset_of(response):
    return response.responses[0].partition_responses[0].base_offset


@pytest.mark.parametrize("size", [1, 100, 65_000, 70_000, 200_000, 3_000_000])
async def test_frames_of_every_size_come_whole(serve, size):
    service = await serve(handler(0, echo))
    client = await service.connect()
    for number in range(3):
        client.send(number, produce(bytes([number]) * size), VERSION)
    for number in range(3):
        correlation_id, answer = await client.answer(0, VERSION)
        assert correlation_id == number
        assert offset_of(answer) == size
        assert answer.responses[0].partition_responses[0].index == number


async def test_frames_cut_anywhere_are_put_together(serve):
    service = await serve(handler(0, echo))
    client = await service.connect()
    for number in range(40):
        client.send(number, produce(b"x" * (number * 37 + 1)), VERSION)
        client.send(number, produce(b"x" * 66_000), VERSION)
    whole = bytearray()
    sent = client.writer.write
    client.writer.write = whole.extend
    for number in range(3):
        client.send(number, produce(b"y" * (number + 1)), VERSION)
    for byte in whole:
        sent(bytes([byte]))
        await asyncio.sleep(0)
    sizes = [offset_of((await client.answer(0, VERSION))[1]) for _ in range(83)]
    expected = [size for number in range(40) for size in (number * 37 + 1, 66_000)]
    assert sizes == [*expected, 1, 2, 3]


async def test_many_small_requests_are_answered_in_order(serve):
    service = await serve(handler(0, echo))
    client = await service.connect()
    for number in range(3000):
        client.send(number, produce(b"x" * (number % 50 + 1)), VERSION)
    got = [await client.answer(0, VERSION) for _ in range(3000)]
    assert [each[0] for each in got] == list(range(3000))


@pytest.mark.parametrize("size", [10, 5_000, 70_000])
async def test_what_a_client_sent_before_it_left_is_run(serve, size):
    """A producer that wants no answers closes when all is sent: more than one turn may run."""
    service = await serve(handler(0, run_without_answer))
    client = await service.connect()
    client.send(0, produce(b"x"), VERSION)
    await eventually(lambda: service.requests.routes)
    (route,) = service.requests.routes
    for number in range(200):
        client.send(number, produce(b"x" * size, acks=0), VERSION)
    client.writer.close()
    await eventually(lambda: not service.acceptor.connections)
    assert route.requests == 201


async def test_a_frame_is_the_request_s_own(serve):
    kept = []

    def keep(node, request, now_ms):
        kept.append(request.body.topic_data[0].partition_data[0].records)
        return echo(node, request, now_ms)

    service = await serve(handler(0, keep))
    client = await service.connect()
    contents = [bytes([number]) * size for number, size in enumerate([10, 70_000, 20, 100_000] * 6)]
    for number, content in enumerate(contents):
        client.send(number, produce(content), VERSION)
    for _ in contents:
        await client.answer(0, VERSION)
    assert [bytes(each) for each in kept] == contents
    assert not any(each.readonly for each in kept)


async def test_an_answer_waits_for_the_ones_before_it(serve):
    parked = []

    def slow(node, request, now_ms):
        answer = echo(node, request, now_ms)
        if offset_of(answer) == 1:
            parked.append(answer)
            return Wait(("key",), now_ms + 60_000, lambda _now, _expired: ready.get("answer"))
        return answer

    ready = {}
    service = await serve(handler(0, slow))
    client = await service.connect()
    for number, size in enumerate([1, 2, 3]):
        client.send(number, produce(b"x" * size), VERSION)
    await eventually(lambda: service.requests.routes and service.requests.routes[0].requests == 3)
    ready["answer"] = parked[0]
    service.serving.wake("key")
    got = [await client.answer(0, VERSION) for _ in range(3)]
    assert [(number, offset_of(answer)) for number, answer in got] == [(0, 1), (1, 2), (2, 3)]


async def test_a_deadline_answers(serve):
    def late(node, request, now_ms):
        return Wait(
            ("key",), now_ms + 20,
            lambda now, expired: echo(node, request, now) if expired else None,
        )  # fmt: skip

    service = await serve(handler(0, late))
    client = await service.connect()
    client.send(5, produce(b"abc"), VERSION)
    assert (await client.answer(0, VERSION))[0] == 5
    assert len(service.requests.purgatory) == 0


async def test_a_decision_holds_up_what_comes_behind_it(serve):
    ran = []

    def decide(_node, request, _now_ms):
        ran.append("decide")
        return Propose(Result((), DescribeClusterResponse(cluster_id="c")))

    def noted(node, request, now_ms):
        ran.append("echo")
        return echo(node, request, now_ms)

    service = await serve(handler(0, noted), handler(60, decide))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    client.send(2, produce(b"x"), VERSION)
    await eventually(lambda: service.shell.proposals)
    assert ran == ["decide"]
    proposal, future = service.shell.proposals[0]
    future.set_result(proposal.result.response)
    assert (await client.answer(60, 0))[1].cluster_id == "c"
    assert (await client.answer(0, VERSION))[0] == 2


async def test_a_wait_that_says_so_holds_up_what_comes_behind_it(serve):
    ran, ready = [], {}

    def slow(_node, _request, now_ms):
        ran.append("slow")
        wait = Wait(("key",), now_ms + 60_000, lambda _now, _expired: ready.get("answer"))
        wait.holds_up = True
        return wait.then(lambda answer: answer)

    def noted(node, request, now_ms):
        ran.append("echo")
        return echo(node, request, now_ms)

    service = await serve(handler(0, noted), handler(60, slow))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    client.send(2, produce(b"x"), VERSION)
    await eventually(
        lambda: len(ran) > 1 or any(each.channel._queue for each in connections(service))
    )
    assert ran == ["slow"]
    ready["answer"] = DescribeClusterResponse(cluster_id="c")
    service.serving.wake("key")
    assert (await client.answer(60, 0))[1].cluster_id == "c"
    assert (await client.answer(0, VERSION))[0] == 2


async def test_no_answer_leaves_no_gap(serve):
    def maybe(node, request, now_ms):
        return NoAnswer() if request.body.acks == 0 else echo(node, request, now_ms)

    service = await serve(handler(0, maybe))
    client = await service.connect()
    for number in range(10):
        client.send(number, produce(b"x", acks=number % 2), VERSION)
    assert [(await client.answer(0, VERSION))[0] for _ in range(5)] == [1, 3, 5, 7, 9]


async def test_a_hangup_comes_after_what_was_promised(serve):
    def rude(node, request, now_ms):
        answer = echo(node, request, now_ms)
        return Hangup("enough") if offset_of(answer) == 3 else answer

    service = await serve(handler(0, rude))
    client = await service.connect()
    for size in (1, 2, 3, 4):
        client.send(size, produce(b"x" * size), VERSION)
    assert [(await client.answer(0, VERSION))[0] for _ in range(2)] == [1, 2]
    assert await client.ended()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (struct.pack(">i", -1) + b"xxxx", "size is -1"),
        (struct.pack(">i", 9 << 20) + b"xxxx", "socket.request.max.bytes"),
        (struct.pack(">i", 3) + b"xxx", "too short"),
        (struct.pack(">ihhih", 10, 0, 9, 1, 500), "bad Produce request"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "API key 999"),
        (struct.pack(">ihhih", 10, 0, 99, 1, -1), "version 99"),
    ],
)
async def test_what_is_no_request_closes_with_one_line(serve, caplog, sent, why):
    service = await serve(handler(0, echo))
    client = await service.connect()
    client.writer.write(sent)
    assert await client.ended()
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 1
    assert why in str(lines[0].__dict__)
    assert service.acceptor.bad_total == 1


async def test_connections_are_limited(serve):
    service = await serve(handler(0, echo), max_connections=2)
    first, second = await service.connect(), await service.connect()
    for client in (first, second):
        client.send(1, produce(b"x"), VERSION)
        await client.answer(0, VERSION)
    third = await service.connect()
    assert await third.ended()
    assert service.acceptor.refused_total == 1
    first.writer.close()
    await eventually(lambda: len(service.acceptor.connections) == 1)
    fourth = await service.connect()
    fourth.send(1, produce(b"x"), VERSION)
    await fourth.answer(0, VERSION)


async def test_connections_of_one_address_are_limited(serve):
    service = await serve(handler(0, echo), max_connections_per_ip=1)
    first = await service.connect()
    first.send(1, produce(b"x"), VERSION)
    await first.answer(0, VERSION)
    assert await (await service.connect()).ended()


async def let_in(service):
    """A client that is answered, once the limits are known."""
    async with asyncio.timeout(SECONDS):
        while True:
            client = await service.connect()
            client.send(1, produce(b"x"), VERSION)
            try:
                return await client.answer(0, VERSION)
            except (asyncio.IncompleteReadError, ConnectionError):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("own", ["127.0.0.1", "LocalHost"])
async def test_one_address_may_have_a_limit_of_its_own(serve, own):
    """A host by all its addresses."""
    service = await serve(
        handler(0, echo),
        max_connections_per_ip=0,
        max_connections_per_ip_overrides=f"10.0.0.1:5,{own}:1",
    )
    await let_in(service)
    assert await (await service.connect()).ended()


def kernel_buffers(service):
    """Receive and send buffer of the listening socket, which its connections inherit."""
    (listening,) = service.acceptor._server.sockets
    with socket.socket(fileno=os.dup(listening.fileno())) as copy:
        options = (socket.SO_RCVBUF, socket.SO_SNDBUF)
        return tuple(copy.getsockopt(socket.SOL_SOCKET, option) for option in options)


async def test_kernel_buffers_are_sized_only_when_somebody_has_chosen_a_size(serve):
    untouched = kernel_buffers(await serve(handler(0, echo)))
    chosen = {"socket.receive.buffer.bytes": "20000", "socket.send.buffer.bytes": "30000"}
    sized = await serve(
        handler(0, echo),
        static=chosen,
        socket_receive_buffer_bytes=20_000,
        socket_send_buffer_bytes=30_000,
    )
    assert kernel_buffers(sized) == (40_000, 60_000)
    assert untouched != (40_000, 60_000)
    left = dict.fromkeys(chosen, "-1")
    to_the_system = await serve(
        handler(0, echo),
        static=left,
        socket_receive_buffer_bytes=-1,
        socket_send_buffer_bytes=-1,
    )
    assert kernel_buffers(to_the_system) == untouched


async def test_a_silent_connection_is_let_go(serve):
    service = await serve(handler(0, echo), connections_max_idle_ms=50)
    assert await (await service.connect()).ended()


def reads(service):
    """Whether the one connection takes requests from its socket."""
    [connection] = service.acceptor.connections
    return connection.channel._reading


async def test_a_slow_reader_is_bounded(serve):
    size = 1 << 20

    def big(_node, _request, _now_ms):
        return DescribeClusterResponse(cluster_id="c", error_message="x" * 30_000)

    service = await serve(handler(60, big))
    client = await service.connect()
    client.reader._limit = 1024
    client.writer.transport.pause_reading()
    for number in range(3000):
        client.send(number, DescribeClusterRequest(), 0)
    await eventually(lambda: not reads(service))
    held = service.acceptor.statistics()["unsent_bytes"]
    assert held < 8 * size
    assert service.requests.routes[0].requests < 3000
    client.writer.transport.resume_reading()
    for number in range(3000):
        assert (await client.answer(60, 0))[0] == number


async def test_requests_that_wait_are_bounded(serve):
    def wait(node, request, now_ms):
        if go:
            return echo(node, request, now_ms)
        return Wait(("key",), now_ms + 60_000, lambda now, _expired: echo(node, request, now))

    go = []
    service = await serve(handler(0, wait))
    client = await service.connect()
    for number in range(100):
        client.send(number, produce(b"x" * 1_000_000), VERSION)
    await eventually(lambda: not reads(service))
    assert service.requests.routes[0].requests < 25
    go.append(True)
    service.serving.wake("key")
    for number in range(100):
        assert (await client.answer(0, VERSION))[0] == number


async def test_a_lost_client_is_forgotten(serve):
    service = await serve(
        handler(0, lambda _n, _r, now_ms: Wait(("key",), now_ms + 60_000, lambda _now, _e: None))
    )
    client = await service.connect()
    client.send(1, produce(b"x"), VERSION)
    await eventually(lambda: len(service.requests.purgatory) == 1)
    client.writer.close()
    await eventually(lambda: len(service.requests.purgatory) == 0)
    assert not service.acceptor.connections


async def test_a_listener_whose_handlers_are_told_another_clock_sweeps_only_the_idle(serve):
    """The controller's handlers are told the steady clock; idleness has one of its own."""
    service = await serve(handler(0, echo), connections_max_idle_ms=60_000)
    service.serving.begin = lambda: setattr(service.requests, "now_ms", 1000)
    client = await service.connect()
    client.send(1, produce(b"x"), VERSION)
    await client.answer(0, VERSION)
    service.acceptor._sweep()
    client.send(2, produce(b"x"), VERSION)
    assert (await client.answer(0, VERSION))[0] == 2


async def test_answers_that_wait_for_an_earlier_one_are_bounded_in_bytes(serve):
    """Requests behind a parked one are run only as long as their answers fit."""
    ran = []

    def big(_node, request, now_ms):
        records = bytes(request.body.topic_data[0].partition_data[0].records)
        if records == b"wait":
            return Wait(("key",), now_ms + 60_000, lambda _now_ms, _expired: ProduceResponse())
        ran.append(records)
        answer = PartitionProduceResponse(index=1, error_message="x" * 30_000)
        topics = [TopicProduceResponse(name="t", partition_responses=[answer])]
        return ProduceResponse(responses=topics)

    service = await serve(handler(0, big))
    client = await service.connect()
    client.send(0, produce(b"wait"), VERSION)
    for number in range(1, 1001):
        client.send(number, produce(b"%d" % number), VERSION)
    [connection] = service.acceptor.connections
    await eventually(
        lambda: (
            not connection.channel.has_runnable
            and (len(ran) + len(connection.channel._queue) == 1000 or not reads(service))
        )
    )
    assert 100 < len(ran) < 200  # 4 MiB of answers of 30 kB each
    service.serving.wake("key")
    for number in range(1001):
        assert (await client.answer(0, VERSION))[0] == number
    assert ran == [b"%d" % number for number in range(1, 1001)]


async def test_faults_found_at_the_end_of_a_step_wake_who_waits(serve):
    """What the shell changes when a step settles belongs to that step."""

    def parked(_node, _request, now_ms):
        return Wait(("key",), now_ms + 60_000, lambda _now_ms, _expired: ProduceResponse())

    service = await serve(handler(0, parked))
    client = await service.connect()
    client.send(1, produce(b"x"), VERSION)
    await eventually(lambda: len(service.requests.purgatory) == 1)

    def find_a_fault():
        service.mailbox.unsynced.clear()
        service.serving.wake("key")

    service.serving.sync_logs = find_a_fault
    service.mailbox.unsynced.add("log")
    service.serving.wake()
    assert (await client.answer(0, VERSION))[0] == 1


async def test_one_connection_may_not_wait_for_more_than_it_can_be_given(serve):
    """Fetches that wait could all be answered at once: only some of one connection are run."""
    ran = []

    def wait(node, request, now_ms):
        ran.append(request.correlation_id)
        if go:
            return echo(node, request, now_ms)
        return Wait(("key",), now_ms + 60_000, lambda now, _e: echo(node, request, now), 50 << 20)

    go = []
    service = await serve(handler(0, wait))
    client, other = await service.connect(), await service.connect()
    for number in range(100):
        client.send(number, produce(b"x"), VERSION)
    other.send(7, produce(b"x"), VERSION)
    await eventually(lambda: 7 in ran and len(ran) == 3)
    assert sorted(ran) == [0, 1, 7]
    go.append(True)
    service.serving.wake("key")
    for number in range(100):
        assert (await client.answer(0, VERSION))[0] == number
    assert all(each.channel.promised_bytes == 0 for each in service.acceptor.connections)


@pytest.mark.own_faults
async def test_small_requests_that_queue_are_bounded_in_number(serve):
    service = await serve(
        handler(
            0,
            lambda _n, _r, now_ms: Wait(("key",), now_ms + 60_000, lambda _now, _e: None, 1 << 30),
        )
    )
    client = await service.connect()
    for number in range(20_000):
        client.send(number, produce(b"x"), VERSION)
    connection = next(iter(service.acceptor.connections))
    await eventually(lambda: not connection.channel._reading)
    assert len(connection.channel._queue) < 2 * 2048 + SHARED_BUFFER_BYTES // 50


async def test_the_log_is_not_filled_by_whoever_sends_rubbish(serve, caplog):
    service = await serve(handler(0, echo))
    for number in range(1, BAD_LINES_A_SECOND + 11):
        client = await service.connect()
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.ended()
        assert service.acceptor.bad_total == number
    assert BAD_LINES_A_SECOND <= len(caplog.records) < BAD_LINES_A_SECOND + 10


MEGABYTE = 1_000_000


def frame_of(number, body):
    """The bytes that a client sends for a request."""
    return b"".join(map(bytes, frame_request(number, "test", body, VERSION)))


async def test_what_all_connections_hold_is_bounded(serve):
    """A large frame begins when there is memory, in the order in which they came."""
    service = await serve(handler(0, echo), queued_max_request_bytes=2 * MEGABYTE)
    clients = [await service.connect() for _ in range(20)]
    frame = frame_of(7, produce(b"x" * MEGABYTE))
    for client in clients:
        client.writer.write(frame[:200_000])
    await eventually(lambda: sum(each._waits_for_memory for each in connections(service)) == 18)
    assert service.memory.held_bytes == 2 * (len(frame) - 4)
    assert service.memory.pool.made == 2
    await eventually(lambda: service.memory.arrived_bytes == 2 * (200_000 - 4))
    small = await service.connect()
    small.send(1, produce(b"small"), VERSION)
    assert offset_of((await small.answer(0, VERSION))[1]) == 5
    for client in clients:
        client.writer.write(frame[200_000:])
    for client in clients:
        assert offset_of((await client.answer(0, VERSION))[1]) == MEGABYTE
    assert service.memory.held_bytes == service.memory.arrived_bytes == 0
    assert service.memory.pool.made <= 3


async def test_who_brings_more_than_there_is_room_for_is_not_read_until_there_is(serve):
    """What has no room behind it holds up all connections that ever brought such, also the one
    that sends nothing just now; others go on."""
    handled = []

    def crowd(world, request, now_ms):
        handled.append(request.correlation_id)
        service.mailbox.stored_later_bytes = 5 * (request.correlation_id < 9)
        service.mailbox.is_crowded = request.correlation_id in (1, 5)
        return echo(world, request, now_ms)

    service = await serve(handler(0, crowd))
    client, same, other, leaving = [await service.connect() for _ in range(4)]
    for each in (same, leaving):
        each.send(0, produce(b"brings"), VERSION)
        await each.answer(0, VERSION)
    client.send(1, produce(b"first"), VERSION)
    client.send(2, produce(b"second"), VERSION)
    assert offset_of((await client.answer(0, VERSION))[1]) == 5
    client.send(3, produce(b"third"), VERSION)
    same.send(4, produce(b"y" * MEGABYTE), VERSION)
    for number in (9, 10):
        other.send(number, produce(b"other"), VERSION)
        assert offset_of((await other.answer(0, VERSION))[1]) == 5
    assert handled == [0, 0, 1, 9, 10]
    assert service.memory.held_bytes < 1000, "not even a part of a large frame was received"
    leaving.writer.close()
    service.serving.read_on()
    for size in (6, 5):
        assert offset_of((await client.answer(0, VERSION))[1]) == size
    assert offset_of((await same.answer(0, VERSION))[1]) == MEGABYTE
    await eventually(lambda: len(connections(service)) == 3)
    assert sorted(handled[5:]) == [2, 3, 4]


@pytest.mark.own_faults
@pytest.mark.parametrize("is_stored_later", [True, False])
async def test_what_waits_for_a_store_is_bounded_for_all_connections_not_for_each(
    serve, is_stored_later
):
    """One producer may fill all write buffers; what else one connection has parked is bounded."""
    count = 24

    def park(_world, request, now_ms):
        batch = request.body.topic_data[0].partition_data[0].records
        service.mailbox.stored_later_bytes = len(batch) * is_stored_later
        return Wait(("key",), now_ms + 60_000, lambda _now, _expired: None)

    service = await serve(handler(0, park))
    client = await service.connect()
    for number in range(count):
        client.send(number, produce(b"x" * MEGABYTE), VERSION)
    await eventually(lambda: connections(service))
    (connection,) = connections(service)
    if is_stored_later:
        await eventually(lambda: connection.channel.received_requests == count)
        assert connection.channel._reading
    else:
        await eventually(lambda: not connection.channel._reading)
        assert connection.channel.received_requests * MEGABYTE < QUEUED_HIGH_BYTES + 2 * MEGABYTE


async def test_of_those_that_are_read_again_the_first_may_take_all_room(serve):
    """Another one's turn comes: none takes it all the time, also if the requests of one are long."""
    handled = []

    def crowd(world, request, now_ms):
        handled.append(request.connection_id)
        until = time.perf_counter() + (0.002 if handled[0] == handled[-1] else 0)
        while time.perf_counter() < until:
            pass
        service.mailbox.stored_later_bytes, service.mailbox.is_crowded = 1, True
        return echo(world, request, now_ms)

    service = await serve(handler(0, crowd))
    clients = [await service.connect() for _ in range(3)]
    for client in clients:
        client.writer.write(b"".join(frame_of(number, produce(b"x")) for number in range(60)))
    for client in clients:
        await client.answer(0, VERSION)
    await eventually(lambda: all(len(each.channel._queue) == 59 for each in connections(service)))
    for count in range(4, 64):
        service.serving.read_on()
        await eventually(lambda count=count: len(handled) == count)
        await asyncio.sleep(0)
        assert len(handled) == count
    counts = Counter(handled)
    assert len(counts) == 3
    assert min(counts.values()) >= 15


async def test_who_leaves_makes_room(serve):
    service = await serve(handler(0, echo), queued_max_request_bytes=MEGABYTE)
    first, gone, third = [await service.connect() for _ in range(3)]
    frame = frame_of(7, produce(b"x" * MEGABYTE))
    first.writer.write(frame[:200_000])
    await eventually(lambda: service.memory.held_bytes)
    gone.writer.write(frame[:200_000])
    await eventually(lambda: sum(each._waits_for_memory for each in connections(service)) == 1)
    third.writer.write(frame)
    await eventually(lambda: sum(each._waits_for_memory for each in connections(service)) == 2)
    gone.writer.close()
    first.writer.close()
    assert offset_of((await third.answer(0, VERSION))[1]) == MEGABYTE
    await eventually(lambda: len(connections(service)) == 1)
    assert service.memory.held_bytes == service.memory.arrived_bytes == 0


async def test_who_leaves_before_its_request_is_decided_holds_nothing(serve):
    """Else each such client would take its request from what all others may hold, for ever."""
    service = await serve(
        handler(0, lambda _n, _r, _now: Propose(Result((), ProduceResponse()))),
        queued_max_request_bytes=MEGABYTE,
    )
    client = await service.connect()
    for number in range(3):
        client.send(number, produce(b"x" * 100_000), VERSION)
    await eventually(lambda: service.shell.proposals and service.memory.held_bytes > 300_000)
    client.writer.close()
    await eventually(lambda: not connections(service))
    assert service.memory.held_bytes == 0
    for proposal, future in service.shell.proposals:
        future.set_result(proposal.result.response)
    await asyncio.sleep(0)
    assert service.memory.held_bytes == 0


async def test_nobody_is_told_of_a_refusal_whose_client_has_left(serve):
    """Else the loop writes a traceback into the log: of a future that nobody asked."""
    complaints = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, told: complaints.append(told["message"])
    )
    service = await serve(handler(0, lambda _n, _r, _now: Propose(Result((), ProduceResponse()))))
    client = await service.connect()
    client.send(1, produce(b"x"), VERSION)
    await eventually(lambda: service.shell.proposals)
    client.writer.close()
    await eventually(lambda: not connections(service))
    _, future = service.shell.proposals.pop()
    future.set_exception(ApiError(ErrorCode.NOT_CONTROLLER))
    await asyncio.sleep(0)
    del future
    gc.collect()
    assert complaints == []


async def test_requests_that_wait_leave_room_for_what_they_wait_for(serve):
    """As a produce request does that all replicas must have: a follower's fetch has to come in."""

    def wait(node, request, now_ms):
        answer = echo(node, request, now_ms)
        if offset_of(answer) == 5:
            node.changed["key"] = None
            return answer
        request.body.topic_data = []
        return Wait(("key",), now_ms + 60_000, lambda _now, _expired: answer)

    service = await serve(handler(0, wait), queued_max_request_bytes=MEGABYTE)
    clients = [await service.connect() for _ in range(10)]
    for client in clients:
        client.send(1, produce(b"x" * MEGABYTE), VERSION)
    await eventually(lambda: len(service.requests.purgatory) == 10)
    assert service.memory.held_bytes == 0
    assert service.memory.pool.made < 4
    other = await service.connect()
    other.send(2, produce(b"fetch"), VERSION)
    assert (await other.answer(0, VERSION))[0] == 2
    for client in clients:
        assert offset_of((await client.answer(0, VERSION))[1]) == MEGABYTE


async def test_what_queues_behind_a_decision_is_held(serve):
    """Many clients that send on while their first request is decided."""
    service = await serve(
        handler(0, lambda _n, _r, _now: Propose(Result((), ProduceResponse()))),
        queued_max_request_bytes=MEGABYTE,
    )
    clients = [await service.connect() for _ in range(10)]
    for client in clients:
        for number in range(60):
            client.send(number, produce(b"x" * 50_000), VERSION)
    await eventually(lambda: all(each._waits_for_memory for each in connections(service)))
    assert service.memory.held_bytes < MEGABYTE + len(clients) * 2 * SHARED_BUFFER_BYTES
    while sum(len(each.channel._queue) for each in connections(service)) or service.shell.proposals:
        proposals, service.shell.proposals = service.shell.proposals, []
        for proposal, future in proposals:
            future.set_result(proposal.result.response)
        await asyncio.sleep(0.001)
    for client in clients:
        for number in range(60):
            assert (await client.answer(0, VERSION))[0] == number
    assert service.memory.held_bytes == 0


def connections(service):
    return service.acceptor.connections
