"""Long work is made part by part, in a thread, and others have their turn in between."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from anabranch.server import gentle


async def test_parts_are_made_in_order_in_a_thread_with_a_pause_after_each(monkeypatch):
    makers, pauses, sleep = [], [], asyncio.sleep

    def parts():
        for number in range(4):
            makers.append(threading.get_ident())
            yield bytes([number])

    async def pause(seconds):
        pauses.append(seconds)
        await sleep(0)

    seen_by_gentle = SimpleNamespace(to_thread=asyncio.to_thread, sleep=pause)
    monkeypatch.setattr(gentle, "asyncio", seen_by_gentle)  # other tasks of the loop sleep, too
    assert await gentle.in_parts(parts()) == [b"\0", b"\1", b"\2", b"\3"]
    assert threading.get_ident() not in makers
    assert len(pauses) == 4
    assert min(pauses) > 0


async def test_who_is_cancelled_makes_no_further_part():
    made, first = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def parts():
        for number in range(1_000):
            made.append(number)
            loop.call_soon_threadsafe(first.set)
            yield number

    making = asyncio.ensure_future(gentle.in_parts(parts()))
    await first.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert len(made) < 1_000
