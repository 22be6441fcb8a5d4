"""What a handler asks for is done: versions, cold reads, forwarding, faults."""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from dataclasses import replace

import pytest
from server_kit import eventually, handler

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.broker.gate import Charge, Session, SessionEvent
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.files import ColdRead
from anabranch.core.node.channel import Channel
from anabranch.core.node.outcomes import STOPS_UNASKED
from anabranch.core.outcome import Cold, Forward, Wait
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.core.wire.messages.metadata import MetadataRequest
from anabranch.core.wire.messages.produce import ProduceRequest, ProduceResponse
from anabranch.server.clocks import steady_ms
from anabranch.server.warmer import WARM_THREADS


def cluster(name="c"):
    return DescribeClusterResponse(cluster_id=name)


async def test_unknown_version_of_api_versions_is_answered_in_version_0(serve):
    """KIP-511."""
    service = await serve(handler(18, lambda _n, _r, _t: ApiVersionsResponse()))
    client = await service.connect()
    client.writer.write(struct.pack(">ihhih", 13, 18, 99, 7, -1) + b"\0\0\0")
    correlation_id, answer = await client.answer(18, 0)
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 4)]
    client.send(8, ApiVersionsRequest(), 0)
    assert (await client.answer(18, 0))[0] == 8


@pytest.mark.parametrize("is_urgent", [True, False])
async def test_an_answer_that_others_wait_for_is_sent_before_the_next_is_looked_at(
    serve, monkeypatch, is_urgent
):
    """A follower copies while the leader reads for the next one."""
    told, send = [], Channel._send

    def sends(connection):
        told.append("sent")
        send(connection)

    def poll(_now_ms, _expired):
        told.append("looked at")
        return cluster()

    both_wait = asyncio.Event()

    def parked(_node, _request, now_ms):
        if len(service.requests.purgatory) == 1:
            both_wait.set()
        return Wait(("news",), now_ms + 60_000, poll, is_urgent=is_urgent)

    service = await serve(handler(60, parked))
    clients = [await service.connect() for _ in range(2)]
    for client in clients:
        client.send(1, DescribeClusterRequest(), 0)
    await both_wait.wait()
    monkeypatch.setattr(Channel, "_send", sends)
    service.serving.wake("news")
    at_the_end = ["looked at", "looked at", "sent", "sent"]
    assert told == (["looked at", "sent"] * 2 if is_urgent else at_the_end)
    for client in clients:
        assert (await client.answer(60, 0))[0] == 1


class ColdFile:
    """Warmed in a thread; says in which."""

    path = "cold"

    def __init__(self):
        self.threads = []

    def warm(self, position, length):
        self.threads.append((threading.current_thread().name, position, length))


async def test_a_cold_read_leaves_the_loop_and_the_answer_follows(serve):
    file = ColdFile()
    ran = []

    def read(_node, _request, _now_ms):
        ran.append(1)
        return Cold(
            (ColdRead(file, 0, 10),),
            lambda _now: Cold((ColdRead(file, 10, 5),), lambda _t: cluster()),
        )

    service = await serve(handler(60, read))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    client.send(2, DescribeClusterRequest(), 0)
    assert [(await client.answer(60, 0))[0] for _ in range(2)] == [1, 2]
    assert [each[1:] for each in file.threads] == [(0, 10), (10, 5)] * 2
    assert all(name.startswith("warm") for name, _, _ in file.threads)
    assert len(ran) == 2


async def test_all_cold_ranges_are_brought_in_before_the_handler_goes_on(serve):
    file, seen = ColdFile(), []

    def again(_now_ms):
        seen.append(len(file.threads))
        return cluster()

    reads = tuple(ColdRead(file, position, 10) for position in range(50))
    service = await serve(handler(60, lambda _n, _r, _t: Cold(reads, again)))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    assert (await client.answer(60, 0))[0] == 1
    assert seen == [50]
    assert sorted(position for _, position, _ in file.threads) == list(range(50))
    assert service.requests.cold_reads_total == 50


async def test_who_lacks_what_a_thread_brings_already_waits_for_the_same(serve):
    """A client that gave up and came again has nothing read a second time."""
    began, goes_on = threading.Event(), threading.Event()
    file = ColdFile()
    read = ColdRead(file, 0, 10)

    def warm():
        file.warm(0, 10)
        began.set()
        assert goes_on.wait(10)

    read.warm = warm
    service = await serve(handler(60, lambda _n, _r, _t: Cold((read,), lambda _now: cluster())))
    first = await service.connect()
    first.send(1, DescribeClusterRequest(), 0)
    await asyncio.to_thread(began.wait, 10)
    others = [await service.connect() for _ in range(3)]
    for each in others:
        each.send(2, DescribeClusterRequest(), 0)
    while service.requests.cold_reads_total < 4:  # noqa: ASYNC110
        await asyncio.sleep(0)
    goes_on.set()
    assert [(await each.answer(60, 0))[0] for each in (first, *others)] == [1, 2, 2, 2]
    assert len(file.threads) == 1
    first.send(3, DescribeClusterRequest(), 0)
    assert (await first.answer(60, 0))[0] == 3
    assert len(file.threads) == 2


@pytest.mark.own_faults
@pytest.mark.parametrize("others", [1, 2])
async def test_a_read_that_never_gets_warm_ends(serve, others):
    """Also when it is not always the first of those that are cold."""
    file = ColdFile()
    rounds = itertools.count()

    def again(_now_ms):
        first = 100 + next(rounds) % others
        return Cold((ColdRead(file, first, 10), ColdRead(file, 0, 10)), again)

    service = await serve(handler(60, lambda _n, _r, now_ms: again(now_ms)))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    assert await client.ended()


async def test_a_forwarded_request_goes_as_it_came(serve):
    service = await serve(handler(60, lambda _n, _r, _t: Forward()))
    client = await service.connect()
    client.send(9, DescribeClusterRequest(), 0)
    assert await client.frame() == struct.pack(">i", 9) + b"answer"
    assert struct.unpack_from(">hhi", service.shell.forwarded[0]) == (60, 0, 9)


@pytest.mark.own_faults
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (ZeroDivisionError("oh"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiError(ErrorCode.NOT_CONTROLLER, "not here"), ErrorCode.NOT_CONTROLLER),
    ],
)
async def test_a_fault_is_answered_where_there_is_room(serve, fault, code):
    def fail(_node, _request, _now_ms):
        raise fault

    service = await serve(handler(60, fail))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    assert (await client.answer(60, 0))[1].error_code == code
    assert service.requests.faults_total == (code == ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.own_faults
async def test_a_fault_closes_where_there_is_no_room(serve):
    def fail(_node, _request, _now_ms):
        raise ZeroDivisionError

    service = await serve(handler(3, fail))
    client = await service.connect()
    client.send(1, MetadataRequest(), 5)
    assert await client.ended()


@pytest.mark.own_faults
async def test_an_answer_that_cannot_be_encoded_is_a_fault(serve):
    service = await serve(handler(60, lambda _n, _r, _t: cluster(name=object())))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    answer = (await client.answer(60, 0))[1]
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert service.requests.faults_total == 1


async def test_a_session_that_is_not_open_gets_only_what_opens_one(serve):
    """The gate, as a listener that authenticates would use it."""
    service = await serve(
        handler(60, lambda _n, request, _t: cluster(str(request.principal))),
        replace(handler(18, lambda _n, _r, _t: ApiVersionsResponse()), opens_session=True),
    )
    client = await service.connect()
    client.send(1, ApiVersionsRequest(), 0)
    await client.answer(18, 0)
    (connection,) = service.acceptor.connections
    session = connection.channel.session = Session(ANONYMOUS, is_restricted=True)
    client.send(2, ApiVersionsRequest(), 0)
    assert (await client.answer(18, 0))[0] == 2
    session.accept(Principal("User", "alice"))
    client.send(3, DescribeClusterRequest(), 0)
    assert (await client.answer(60, 0))[1].cluster_id == "User:alice"
    session.step(SessionEvent.TIME_OVER)
    client.send(4, DescribeClusterRequest(), 0)
    assert await client.ended()


class Rest:
    """Quotas that let one principal rest after each request; note what was charged."""

    def __init__(self, principal, rest_ms):
        self.principal, self.rest_ms, self.charged = principal, rest_ms, []

    def charge(self, principal, _client_id, kind, amount, _now_ms):
        self.charged.append((principal.name, kind, amount))
        return self.rest_ms if principal == self.principal else 0

    def take_back(self, *_what):
        raise AssertionError("nothing here is over the quota of its bytes")


MUTED = Principal("User", "muted")


async def two_clients(service):
    """One that quotas know, and one that they do not."""
    muted = await service.connect()
    await eventually(lambda: service.acceptor.connections)
    (connection,) = service.acceptor.connections
    connection.channel.session = Session(MUTED)
    return muted, await service.connect(), connection


@pytest.mark.parametrize("is_parked", [False, True], ids=["at-once", "later"])
async def test_a_muted_connection_is_answered_after_its_mute_and_in_order(serve, is_parked):
    """KIP-219: what went over the quota is answered at once, what follows it is run later."""
    ran = []

    def run(_node, request, now_ms):
        ran.append((request.principal.name, request.correlation_id, steady_ms()))
        if is_parked:
            return Wait((), now_ms, lambda _now, _expired: cluster())
        return cluster()

    service = await serve(handler(60, run))
    quotas = service.requests.quotas = Rest(MUTED, 100)
    muted, other, connection = await two_clients(service)
    muted.send(1, DescribeClusterRequest(), 0)
    assert (await muted.answer(60, 0))[0] == 1
    until_ms = connection.channel.session.muted_until_ms
    quotas.rest_ms = 0
    muted.send(2, DescribeClusterRequest(), 0)
    muted.send(3, DescribeClusterRequest(), 0)
    await eventually(lambda: connection.channel.has_queued)
    other.send(4, DescribeClusterRequest(), 0)
    assert (await other.answer(60, 0))[0] == 4
    assert [(await muted.answer(60, 0))[0] for _ in range(2)] == [2, 3]
    times = {correlation_id: at_ms for name, correlation_id, at_ms in ran if name == "muted"}
    assert list(times) == [1, 2, 3]
    assert times[1] < until_ms <= times[2] <= times[3]
    assert [each[1] for each in ran if each[0] != "muted" or each[1] == 2] == [4, 2]
    assert (service.memory.held_bytes, connection.channel.received_requests) == (0, 3)
    assert [each[:2] for each in quotas.charged] == [
        (name, Charge.REQUEST) for name in ("muted", ANONYMOUS.name, "muted", "muted")
    ]
    assert all(0 < percent < 100 for _, _, percent in quotas.charged)


async def test_a_muted_connection_that_ends_leaves_nothing(serve):
    service = await serve(handler(60, lambda _n, _r, _t: cluster()))
    service.requests.quotas = Rest(MUTED, 60_000)
    muted, _other, connection = await two_clients(service)
    for number in (1, 2, 3):
        muted.send(number, DescribeClusterRequest(), 0)
    assert (await muted.answer(60, 0))[0] == 1
    await eventually(lambda: len(service.requests.purgatory) == 1)
    muted.writer.close()
    await eventually(lambda: connection not in service.acceptor.connections)
    assert (len(service.requests.purgatory), service.memory.held_bytes) == (0, 0)


async def test_records_are_charged_by_their_bytes(serve):
    """In and out; an answer that waited is charged like one that was there."""
    answer = ProduceResponse(responses=[])
    service = await serve(
        replace(
            handler(0, lambda _n, _r, now_ms: Wait((), now_ms, lambda _now, _expired: answer)),
            charge=Charge.PRODUCE,
        ),
        replace(handler(60, lambda _n, _r, _t: cluster("c" * 500)), charge=Charge.FETCH),
    )
    quotas = service.requests.quotas = Rest(MUTED, 0)
    client = await service.connect()
    client.send(1, ProduceRequest(transactional_id="t" * 300, topic_data=[]), 9)
    await client.answer(0, 9)
    client.send(2, DescribeClusterRequest(), 0)
    await client.answer(60, 0)
    charged = [each for each in quotas.charged if each[1] is not Charge.REQUEST]
    (_, produced, brought), (_, fetched, taken) = charged
    assert (produced, fetched) == (Charge.PRODUCE, Charge.FETCH)
    assert 300 < brought < 400 and 500 < taken < 600


async def test_what_comes_while_the_node_stops_waits_for_nothing(serve):
    """Another listener of the role may still read while the first is drained."""

    def long_poll(_node, _request, now_ms):
        return Wait((), now_ms + 600_000, lambda _now, _expired: cluster())

    service = await serve(handler(60, long_poll))
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    await eventually(lambda: len(service.requests.purgatory) == 1)
    await service.serving.stop()
    assert (await client.answer(60, 0))[0] == 1
    client.send(2, DescribeClusterRequest(), 0)
    assert (await client.answer(60, 0))[0] == 2


async def test_no_quota_holds_up_the_end(serve):
    service = await serve(handler(60, lambda _n, _r, _t: cluster()))
    service.requests.quotas = Rest(MUTED, 600_000)
    muted, _other, _connection = await two_clients(service)
    for number in (1, 2, 3):
        muted.send(number, DescribeClusterRequest(), 0)
    assert (await muted.answer(60, 0))[0] == 1
    await eventually(lambda: len(service.requests.purgatory) == 1)
    await service.serving.stop()
    assert [(await muted.answer(60, 0))[0] for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_forwarded_request_is_hung_up_when_the_node_stops(serve, caplog, is_sent):
    """Whether the controller did it nobody knows: the client asks again, elsewhere. It may be that
    the node stops before it has asked the controller."""
    is_under_way = asyncio.Event()

    def begin(_node, _request, _now_ms):
        if not is_sent:
            is_under_way.set()  # who stops goes on before the task that asks has begun
        return Forward()

    async def forward(_frame, _request):
        is_under_way.set()
        await asyncio.Event().wait()

    service = await serve(handler(60, begin))
    service.shell.forward = forward
    client = await service.connect()
    client.send(1, DescribeClusterRequest(), 0)
    await is_under_way.wait()
    await service.serving.stop()
    assert await client.ended()
    assert STOPS_UNASKED in str(caplog.records[-1].__dict__)


async def test_a_read_that_is_queued_when_the_node_stops_is_hung_up(serve):
    """Nobody reads it any more: its client asks again, elsewhere, at once."""
    file, goes_on, positions = ColdFile(), threading.Event(), itertools.count()

    def warm(position, length):
        ColdFile.warm(file, position, length)
        assert goes_on.wait(60)

    def read(_node, _request, _now_ms):
        return Cold((ColdRead(file, next(positions), 1),), lambda _now: cluster())

    file.warm = warm
    service = await serve(handler(60, read))
    clients = [await service.connect() for _ in range(WARM_THREADS + 2)]
    try:
        for count, client in enumerate(clients, start=1):
            client.send(1, DescribeClusterRequest(), 0)
            await eventually(lambda: service.requests.cold_reads_total == count)  # noqa: B023
        await eventually(lambda: len(file.threads) == WARM_THREADS)
        await service.serving.stop()
        for client in clients[WARM_THREADS:]:
            assert await client.ended()
    finally:
        goes_on.set()
    for client in clients[:WARM_THREADS]:  # these were under way
        assert (await client.answer(60, 0))[0] == 1
        client.send(2, DescribeClusterRequest(), 0)
        assert await client.ended()
    assert len(file.threads) == WARM_THREADS
