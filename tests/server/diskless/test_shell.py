"""Reads of objects that are late are made twice."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.diskless.objects import ObjectsAway
from anabranch.server.diskless.shell import hedged


class Calls:
    """Calls that a test ends, one after the other."""

    def __init__(self):
        self.made = []
        self.came = asyncio.Event()

    def __call__(self):
        future = asyncio.get_running_loop().create_future()
        self.made.append(future)
        self.came.set()
        return future

    async def nth(self, count):
        while len(self.made) < count:
            self.came.clear()
            await self.came.wait()
        return self.made[count - 1]


async def test_a_call_that_answers_in_time_is_made_once():
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 60))
    (await calls.nth(1)).set_result("bytes")
    assert await asked == "bytes"
    assert len(calls.made) == 1


@pytest.mark.parametrize("answers", [1, 2])
async def test_of_two_calls_the_first_answer_counts(answers):
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 0))
    await calls.nth(2)
    calls.made[answers - 1].set_result(answers)
    assert await asked == answers
    assert calls.made[2 - answers].cancelled()


@pytest.mark.parametrize("is_apart", [True, False])
async def test_one_that_fails_leaves_it_to_the_other(is_apart):
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 0))
    await calls.nth(2)
    calls.made[0].set_exception(ObjectsAway("down"))
    if is_apart:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    calls.made[1].set_result("bytes")
    assert await asked == "bytes"


async def test_what_the_last_one_raises_is_raised():
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 60))
    (await calls.nth(1)).set_exception(ObjectsAway("down"))
    with pytest.raises(ObjectsAway):
        await asked
