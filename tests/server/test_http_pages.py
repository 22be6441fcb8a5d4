"""Pages of figures are made without holding up the loop."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from prometheus_client.core import GaugeMetricFamily

from anabranch.server import http, main


class Figures:
    """Counts who reads it, and gives another value each time."""

    def __init__(self):
        self.readers = []

    def collect(self):
        self.readers.append(threading.get_ident())
        family = GaugeMetricFamily("reads", "How often it was read.")
        family.add_metric((), len(self.readers))
        yield family


async def test_figures_are_read_on_the_loop_and_the_text_is_made_in_a_thread(monkeypatch):
    figures, makers, made = Figures(), [], http.generate_latest
    monkeypatch.setattr(http, "registry_of", lambda _node: figures)
    monkeypatch.setattr(http, "generate_latest",
                        lambda found: makers.append(threading.get_ident()) or made(found))  # fmt: skip
    page = await page_of(http.application(None), "/metrics")
    assert "reads 1.0" in page
    assert figures.readers == [threading.get_ident()]
    assert makers
    assert makers[0] != threading.get_ident()


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
