"""Waits below a millisecond: calls come together, in order, after their time, and not after close."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from types import SimpleNamespace

import pytest

from anabranch.server.short_timer import ShortTimer

SECONDS = 0.0005


async def test_calls_come_together_and_in_order_when_the_time_is_over():
    timer, came = ShortTimer(SECONDS), []
    begin = time.perf_counter()
    over = asyncio.get_running_loop().create_future()
    timer.call(lambda: came.append("one"))
    timer.call(lambda: (came.append("two"), over.set_result(time.perf_counter())))
    assert timer.is_running
    await asyncio.sleep(0)
    end = await over
    assert came == ["one", "two"]
    assert end - begin >= SECONDS
    assert not timer.is_running
    again = asyncio.get_running_loop().create_future()
    timer.call(lambda: again.set_result(None))
    await again
    timer.close()


async def test_what_a_call_asks_for_waits_as_long_again():
    timer, over = ShortTimer(SECONDS), asyncio.get_running_loop().create_future()
    begin = time.perf_counter()
    timer.call(lambda: timer.call(lambda: over.set_result(time.perf_counter())))
    assert await over - begin >= 2 * SECONDS
    timer.close()


async def test_a_call_that_raises_does_not_end_those_behind_it():
    loop = asyncio.get_running_loop()
    faults, over = [], loop.create_future()
    loop.set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
    timer = ShortTimer(SECONDS)
    timer.call(lambda: 1 / 0)
    timer.call(lambda: over.set_result(None))
    await over
    assert [type(each) for each in faults] == [ZeroDivisionError]
    timer.close()


async def test_nothing_is_called_and_nothing_stays_open_after_close():
    timer, came = ShortTimer(SECONDS), []
    descriptor = timer._descriptor
    os.fstat(descriptor)
    timer.call(lambda: came.append("late"))
    timer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    await asyncio.sleep(0.01)
    assert came == []
    timer.close()


@pytest.mark.parametrize(
    "library",
    [SimpleNamespace(), SimpleNamespace(timerfd_settime=None, timerfd_create=lambda *_: -1)],
    ids=["another system", "no descriptor left"],
)
async def test_without_such_a_timer_calls_come_in_the_next_turn(monkeypatch, library):
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    timer, came = ShortTimer(SECONDS), []
    timer.call(lambda: came.append("one"))
    assert came == []
    await asyncio.sleep(0)
    assert came == ["one"]
    timer.close()
