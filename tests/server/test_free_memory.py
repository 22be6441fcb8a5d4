"""What is free between what stays goes back to the system, and little effort is spent on little."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.server.node_kit import START_SECONDS, settings_of

from anabranch.server import free_memory, main
from anabranch.server.config import load_config
from anabranch.server.free_memory import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    WORTHWHILE_BYTES,
    GlibcHeap,
    give_back,
    look,
)

PIECE_BYTES, PIECES = 60_000, 800
SOON_SECONDS = 10


class FakeHeap:
    """A heap that gives back so much each time."""

    def __init__(self, free, gives):
        self.free, self.gives, self.resident, self.trims = free, gives, 1 << 30, 0

    def free_bytes(self):
        return self.free

    def resident_bytes(self):
        return self.resident

    def trim(self):
        self.trims += 1
        self.resident -= self.gives


def test_a_round_that_gives_back_little_is_followed_by_longer_pauses():
    heap, pauses = FakeHeap(WORTHWHILE_BYTES, 1000), [FIRST_PAUSE_S]
    for _ in range(6):
        pauses.append(look(heap, pauses[-1]).pause_s)
    assert pauses == [5, 10, 15, 15, 15, 15, 15]
    heap.gives = 4 << 20
    assert look(heap, pauses[-1]) == (4 << 20, FIRST_PAUSE_S)


def test_nothing_is_looked_for_where_little_is_free():
    heap = FakeHeap(WORTHWHILE_BYTES - 1, 1000)
    assert look(heap, LONGEST_PAUSE_S) == (0, FIRST_PAUSE_S)
    assert heap.trims == 0


def glibc():
    try:
        return GlibcHeap()
    except AttributeError:
        pytest.skip("another C library")


def test_what_is_free_between_what_stays_is_given_back():
    """As requests that waited leave it: glibc alone gives nothing of it back."""
    heap = glibc()
    pieces = [bytearray(b"x" * PIECE_BYTES) for _ in range(PIECES)]
    del pieces[::2]
    assert look(heap, FIRST_PAUSE_S).given_back > PIECES // 2 * PIECE_BYTES // 2
    assert all(each == b"x" * PIECE_BYTES for each in pieces)


async def test_a_node_looks_again_and_again(monkeypatch):
    looked = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def told(_heap, pause_s):
        loop.call_soon_threadsafe(looked.put_nowait, pause_s)
        return free_memory.Round(0, pause_s)

    glibc()
    monkeypatch.setattr(free_memory, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(free_memory, "look", told)
    giving = asyncio.ensure_future(give_back())
    assert [await looked.get() for _ in range(3)] == [0.001] * 3
    giving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving


async def test_a_node_that_serves_looks_until_it_stops(monkeypatch, tmp_path):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def giving():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def stop(node):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(begun.wait(), SOON_SECONDS)
        node.stopped.set_result("")

    monkeypatch.setattr(free_memory, "give_back", giving)
    monkeypatch.setattr(main, "settle_memory", lambda: None)  # it is the process's, and for good
    monkeypatch.setattr(main.gc, "set_threshold", lambda *_: None)
    stopping = []
    async with asyncio.timeout(START_SECONDS):
        code = await main.serve(
            load_config(None, settings_of(tmp_path)),
            lambda node: stopping.append(asyncio.ensure_future(stop(node))),
            tell_failure=pytest.fail,
        )
    assert code == 0 and ended.is_set()
