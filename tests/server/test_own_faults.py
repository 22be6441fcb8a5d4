"""What is not a client's doing is counted, logged once with its cause, and fails a test."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sqlite3
import struct
import urllib.error
import urllib.request
import warnings

import pytest
from any_answer_kit import wait_for
from confluent_kafka import Producer
from node_kit import ThreadNode, free_port
from server_kit import SECONDS, eventually, handler
from tests.conftest import OWN_FAULTS

from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError, Bug, ErrorCode, StorageFault
from anabranch.core.outcome import Wait
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.server import own_faults
from anabranch.server.link import Link
from anabranch.server.logs import TextLines
from anabranch.server.own_faults import CONNECTION, EXCEPTION, OwnFaults, tell_unexpected
from anabranch.testing import LocalCluster
from anabranch.testing.cluster_log import tell_own_faults

VERSION = 3
pytestmark = pytest.mark.own_faults


def answer(_world, _request, _now_ms):
    return ApiVersionsResponse()


def one_line(*words):
    """The only line that was logged, which has all of these words."""
    [line] = OWN_FAULTS
    assert all(each in line for each in words), line


async def asked(service):
    client = await service.connect()
    client.send(1, ApiVersionsRequest(), VERSION)
    return client


async def test_an_answer_that_a_bug_keeps_from_being_sent_ends_its_connection_and_no_other(
    serve, monkeypatch
):
    """As a loan was once joined with bytes. Another client's request has its answer made."""
    real, broken = Link.send, []

    def send(link, pieces, size):
        if link in broken:
            raise TypeError("sequence item 2: expected a bytes-like object")
        real(link, pieces, size)

    def wait_or_wake(world, request, now_ms):
        if request.connection_id == 1:
            return Wait(("key",), now_ms + 60_000, lambda *_when: ApiVersionsResponse())
        world.changed["key"] = None
        return ApiVersionsResponse()

    monkeypatch.setattr(Link, "send", send)
    service = await serve(handler(18, wait_or_wake))
    first = await asked(service)
    await eventually(lambda: len(service.requests.purgatory))
    [connection] = service.acceptor.connections
    broken.append(connection.link)
    second = await asked(service)
    assert (await second.answer(18, VERSION))[0] == 1
    assert await first.ended()
    assert service.serving.own_faults.counts == {CONNECTION: 1, EXCEPTION: 0}
    one_line("closing a connection", "TypeError: sequence item 2", "test_own_faults.py")
    assert len(service.acceptor.connections) == 1


async def test_what_a_bug_breaks_while_requests_are_read_ends_the_connection(serve, monkeypatch):
    service = await serve(handler(18, answer))

    def broken(_connection, _frame):
        raise TypeError("on purpose")

    monkeypatch.setattr(service.requests, "handle", broken)
    assert await (await asked(service)).ended()
    assert service.serving.own_faults.counts == {CONNECTION: 1, EXCEPTION: 1}
    assert "TypeError: on purpose" in OWN_FAULTS[0]
    assert "closing a connection" in OWN_FAULTS[1]


async def test_a_disk_that_refuses_the_rest_of_an_answer_is_told(serve, monkeypatch):
    def broken(_link, _pieces, _size):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Link, "send", broken)
    service = await serve(handler(18, answer))
    assert await (await asked(service)).ended()
    assert service.serving.own_faults.counts == {CONNECTION: 1, EXCEPTION: 0}
    one_line("closing a connection", "Input/output error", "listener=TEST", "peer=127.0.0.1")


@pytest.mark.parametrize("fault", [BrokenPipeError(), ConnectionResetError(), OSError(113, "no")])
async def test_a_peer_that_is_gone_is_not(serve, monkeypatch, fault):
    def gone(_link, _pieces, _size):
        raise fault

    monkeypatch.setattr(Link, "send", gone)
    service = await serve(handler(18, answer))
    assert await (await asked(service)).ended()
    assert not any(service.serving.own_faults.counts.values())


async def test_a_client_that_is_hung_up_for_what_it_sent_is_not(serve):
    service = await serve(handler(18, answer))
    client = await service.connect()
    client.writer.write(struct.pack(">i", -5))
    assert await client.ended()
    assert service.acceptor.bad_total == 1
    assert not any(service.serving.own_faults.counts.values())


async def test_a_request_that_fails_without_room_for_it_in_its_answer_is_told(serve, monkeypatch):
    def broken(_world, _request, _now_ms):
        raise Bug("nobody thought of it")

    monkeypatch.setattr("anabranch.core.node.outcomes.error_answer", lambda *_what: None)
    service = await serve(handler(18, broken))
    assert await (await asked(service)).ended()
    assert service.serving.own_faults.counts == {CONNECTION: 1, EXCEPTION: 1}


async def test_what_no_code_of_a_loop_catches_is_told():
    faults, loop = OwnFaults(), asyncio.get_running_loop()
    faults.watch(loop)

    async def fails():
        raise ValueError("in a task")

    def breaks(what):
        raise ValueError(what)

    loop.call_soon(breaks, "in a callback")
    task = loop.create_task(fails())
    task.add_done_callback(lambda _task: breaks("in a done callback"))
    await eventually(task.done)
    await eventually(lambda: faults.counts[EXCEPTION] == 2)
    del task
    gc.collect()
    await eventually(lambda: faults.counts[EXCEPTION] == 3)
    assert {"in a task", "in a callback", "in a done callback"} == {
        each for line in OWN_FAULTS for each in ("in a task", "in a callback", "in a done callback")
        if each in line
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (ApiError(ErrorCode.NOT_CONTROLLER), 0),
        (StorageFault("full"), 0),
        (ConnectionLost("away"), 0),
        (TimeoutError(), 0),
        (asyncio.IncompleteReadError(b"", 4), 0),
        (Bug("a rule was broken"), 1),
        (KeyError("x"), 1),
        (sqlite3.ProgrammingError("no such column"), 1),
    ],
)
async def test_code_that_goes_on_tells_what_it_did_not_expect(fault, count):
    faults = OwnFaults()
    faults.watch(asyncio.get_running_loop())
    tell_unexpected(fault, "a round of something")
    assert faults.counts[EXCEPTION] == count
    if count:
        one_line("a round of something", type(fault).__name__)


def test_what_ends_with_its_loop_is_left_alone():
    tell_unexpected(RuntimeError("the loop is closed"), "a round of something")
    assert not OWN_FAULTS


async def test_lines_are_bounded_and_counts_are_not(monkeypatch):
    faults, now_ms = OwnFaults(), [1_000_000]
    monkeypatch.setattr(own_faults, "steady_ms", lambda: now_ms[0])
    for _ in range(1000):
        faults.note(EXCEPTION, "again and again")
    assert faults.counts[EXCEPTION] == 1000
    assert len(OWN_FAULTS) == own_faults.LINES_A_SECOND
    now_ms[0] += 1000
    faults.note(EXCEPTION, "again and again")
    assert f"unsaid={1000 - own_faults.LINES_A_SECOND}" in OWN_FAULTS[-1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_node_exports_what_it_counts(tmp_path, monkeypatch):
    """A request over HTTP that fails, for one."""
    port = free_port()
    node = ThreadNode(tmp_path, http_listener=f"127.0.0.1:{port}").start()

    def breaks(_node):
        raise ValueError("on purpose")

    monkeypatch.setattr("anabranch.server.http.known", breaks)
    try:
        wait_for(lambda: listens(port))
        with pytest.raises(urllib.error.HTTPError, match="500") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/placement", timeout=SECONDS)
        assert b"ValueError: on purpose" in refused.value.read()
        one_line("answering /placement", "ValueError: on purpose")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as page:
            lines = page.read().decode().splitlines()
    finally:
        node.close()
    assert 'anabranch_own_faults_total{kind="connection"} 0.0' in lines
    assert 'anabranch_own_faults_total{kind="exception"} 1.0' in lines


def test_a_test_s_cluster_tells_when_it_ends(monkeypatch):
    """An answer of one of its brokers cannot be sent; the client tries again."""
    real, planted = Link.send, []

    def broken_once(link, pieces, size):
        if planted:
            planted.clear()
            raise TypeError("on purpose")
        real(link, pieces, size)

    monkeypatch.setattr(Link, "send", broken_once)
    cluster = LocalCluster().start()
    try:
        cluster.create_topic("t")
        planted.append(True)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        producer.produce("t", b"value")
        assert producer.flush(SECONDS) == 0
        assert not planted
    finally:
        with pytest.warns(RuntimeWarning, match="a broker had a fault of its own") as told:
            cluster.stop()
    assert "on purpose" in str(told[0].message)


def test_logs_of_processes_are_understood():
    """They write lines of text; a cluster puts the broker before each."""
    event = logging.makeLogRecord({"name": "anabranch.own_faults", "levelname": "WARNING"})
    with pytest.warns(RuntimeWarning, match="own_faults"):
        tell_own_faults(f"broker 1: ready\nbroker 1: {TextLines().format(event)}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_own_faults("broker 1: ready")
