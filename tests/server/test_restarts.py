"""R17: what a node does for as long as it runs goes on after a fault that nobody thought of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from server_kit import SECONDS

from anabranch.server.groups import GroupShell
from anabranch.server.logs import logger
from anabranch.server.restarts import restarted


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("anabranch.server.restarts.AGAIN_S", 0.001)


def failing(times):
    """Work that fails so often, and an event that is set when it does not any more."""
    done, left = asyncio.Event(), [ValueError("a bug")] * times

    def work(*_about):
        if left:
            raise left.pop()
        done.set()

    return work, done


async def test_work_that_failed_is_said_and_begun_again(caplog):
    """In the words of what it is, and to the loop, whose node counts what it did not expect."""
    work, done = failing(2)
    told = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: told.append(context["message"]))

    async def turn():
        work()
        await asyncio.Event().wait()

    task = asyncio.create_task(restarted(turn, "the sweeping of floors", logger("test")))
    async with asyncio.timeout(SECONDS):
        await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.messages == ["the sweeping of floors failed"] * 2
    assert told == ["the sweeping of floors"] * 2
    assert caplog.records[0].anabranch_fields == {"why": "ValueError: a bug"}


async def test_offsets_expire_after_a_fault_that_nobody_thought_of(monkeypatch):
    work, done = failing(1)
    monkeypatch.setattr("anabranch.server.groups.offsets.expire", work)
    config = SimpleNamespace(offsets_retention_check_interval_ms=1)
    broker = SimpleNamespace(config=config, groups=None)
    shell = GroupShell(broker, lambda: None, lambda: None)
    shell.start()
    async with asyncio.timeout(SECONDS):
        await done.wait()
    shell.stop()
