"""Pages of figures are made without holding up the loop."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from types import SimpleNamespace

import pytest
from tests.server.server_kit import eventually

from anabranch.core.types import TopicPartition
from anabranch.server import http, main
from anabranch.server.config import load_config
from anabranch.server.http_guard import HttpGuard
from anabranch.server.metrics import NodeCollector

OPEN = load_config(None, ["http.listener=127.0.0.1:0"])
"""A node whose pages need no token."""


class Figures:
    """Counts who reads a moment and who makes families of it; gives another value each time."""

    def __init__(self, _node=None):
        self.readers, self.makers = [], []

    def moment(self):
        self.readers.append(threading.get_ident())
        return [self._told(len(self.readers))]

    def _told(self, count):
        self.makers.append(threading.get_ident())
        yield "anabranch_start_seconds", (), count


async def test_figures_are_read_on_the_loop_and_the_page_is_made_in_a_thread(monkeypatch):
    """The families too: they took longer than all figures, and clients wait for the loop."""
    figures = Figures()
    monkeypatch.setattr(http, "NodeCollector", lambda _node: figures)
    guard = HttpGuard(OPEN.http_settings, "")
    page = await page_of(http.application(SimpleNamespace(broker=None), guard), "/metrics")
    assert "anabranch_start_seconds 1.0" in page
    assert "process_cpu_seconds_total" in page
    assert figures.readers == [threading.get_ident()]
    assert figures.makers
    assert figures.makers[0] != threading.get_ident()


async def page_of(application, path):
    """What an ASGI application answers."""
    parts = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        parts.append(message.get("body", b""))

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await application(scope, receive, send)
    return b"".join(parts).decode()


def test_a_thread_that_computes_gives_way_to_the_loop_soon(monkeypatch):
    before, seen = sys.getswitchinterval(), []

    async def serve(*_what, **_how):
        seen.append(sys.getswitchinterval())
        return 0

    monkeypatch.setattr(main, "serve", serve)
    try:
        assert main.run(None, loop_factory=asyncio.new_event_loop) == 0
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(main.SWITCH_SECONDS)]
    assert seen[0] < before


async def started():
    """A listener whose pages need no token."""
    guard = HttpGuard(OPEN.http_settings, "")
    node = SimpleNamespace(is_ready=True, config=OPEN, stopped=asyncio.Future())
    return await http.HttpListener.start(node, "127.0.0.1", 0, guard)


async def test_it_listens_before_the_node_may_say_that_it_is_ready(monkeypatch):
    """A client that waits for the word and asks then is not refused."""
    monkeypatch.setattr(http, "NodeCollector", Figures)
    listener = await started()
    host, port = listener.address.split(":")
    with socket.socket() as asking:
        assert asking.connect_ex((host, int(port))) == 0
    await listener.stop()


async def test_connections_that_ask_nothing_end_and_there_are_never_too_many(monkeypatch):
    """Monitoring that hangs, and clients that vanish in the midst of a request."""
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(http, "NodeCollector", Figures)
    listener = await started()
    host, port = listener.address.split(":")
    await eventually(lambda: listener._server.started)
    held = listener._server.server_state.connections
    many = [await asyncio.open_connection(host, int(port)) for _ in range(7)]
    await eventually(lambda: sum(is_over(reader) for reader, _ in many) == 3)
    for _, writer in many:
        writer.close()
    await eventually(lambda: not held)

    monkeypatch.setattr(http, "PATIENCE_SECONDS", 0.2)
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    silent[1][1].write(b"GET /readyz HTTP/1.1\r\n")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(4):  # one that is used stays
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"}")
        await asyncio.sleep(0.1)
    await eventually(lambda: all(is_over(each) for each, _ in silent))
    for _, each in (*silent, (reader, writer)):
        each.close()
    await listener.stop()


def is_over(reader):
    return reader.at_eof() or reader.exception() is not None


def test_topics_that_are_gone_have_no_series():
    """A month of topics that come and go: as many labels as topics are there."""
    node = SimpleNamespace(broker=None)
    collector = NodeCollector(node)

    def replica(name, end):
        place = TopicPartition(name, 0)
        log = SimpleNamespace(end_offset=end)
        return SimpleNamespace(topic_id=name.encode(), topic_partition=place, log=log)

    for number in range(1_000):
        collector._count_records([replica("stays", number), replica(f"t{number}", 3)])
    assert collector._records == {"stays": 999, "t999": 3}
    assert len(collector._ends) == 2
