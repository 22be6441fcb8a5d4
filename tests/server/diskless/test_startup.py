"""Stores that come later than their node: what refuses a start, and what is waited for."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.errors import StorageFault
from anabranch.server.config import load_config
from anabranch.server.diskless import startup
from anabranch.server.diskless.startup import StoresAtStart
from anabranch.server.diskless.stores import Stores

FOREVER, LATE = StorageFault("another cluster's"), "late"
STORES = "the stores"


@pytest.fixture
def tries(monkeypatch, tmp_path):
    """Have `Stores.open` do one thing after another; the opening, and what it gave its callers."""
    script, got, said = [], [], []

    async def attempt(_config, _cluster_id):
        step = script.pop(0)
        if step is LATE:
            await asyncio.sleep(0.02)
            step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    monkeypatch.setattr(Stores, "open", attempt)
    monkeypatch.setattr(startup, "RETRY_S", 0.0)
    monkeypatch.setattr(startup, "PATIENCE_S", 0.01)
    config = load_config(None, [f"log.dirs={tmp_path}", "diskless.storage.system.enable=true"])

    def opens(*steps):
        script[:] = steps
        made = StoresAtStart(config, "c")
        made.on_waiting = said.append
        made.then(got.append)
        return made

    opens.got, opens.said, opens.script = got, said, script
    return opens


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("away", [ObjectsAway("store away"), CoordinatorAway("order away")])
async def test_what_does_not_answer_is_waited_for_and_said(tries, away):
    made = tries(away, away, LATE, away, STORES)
    await made.begin()
    assert made.stores is None and tries.got == []
    await until(lambda: tries.got)
    assert tries.got == [STORES] and tries.said == [str(away)] * 3
    assert made.why == "" and tries.script == []
    made.stores = None
    await made.stop()


async def test_what_does_not_pass_refuses_the_start(tries):
    made = tries(FOREVER)
    with pytest.raises(StorageFault, match="another cluster's"):
        await made.begin()
    await made.stop()
    assert tries.got == []


async def test_what_is_found_wrong_after_the_start_is_an_error_and_tried_again(tries, monkeypatch):
    """The node goes on for its classic topics."""
    logged = []

    class Logged:
        def info(self, _event): ...

        def warning(self, _event, why):
            logged.append(("warning", why))

        def error(self, _event, why):
            logged.append(("error", why))

    monkeypatch.setattr(startup, "LOG", Logged())
    made = tries(ObjectsAway("away"), FOREVER, STORES)
    await made.begin()
    await until(lambda: tries.got)
    assert tries.said == ["away", str(FOREVER)]
    assert logged == [("warning", "away"), ("error", str(FOREVER))]
    made.stores = None
    await made.stop()


async def test_what_nobody_foresaw_is_said_and_tried_again(tries):
    made = tries(ObjectsAway("away"), RuntimeError("nobody foresaw this"), STORES)
    await made.begin()
    await until(lambda: tries.got)
    assert tries.said == ["away", "RuntimeError: nobody foresaw this"]
    made.stores = None
    await made.stop()


async def test_a_first_answer_that_comes_late_is_no_reason_to_wait(tries):
    made = tries(LATE, STORES)
    await made.begin()
    assert made.stores is None
    await until(lambda: tries.got)
    made.stores = None
    await made.stop()


async def test_a_node_that_stops_tries_no_more(tries):
    made = tries(*[ObjectsAway("away")] * 100_000)
    await made.begin()
    await made.stop()
    left = len(tries.script)
    await asyncio.sleep(0.01)
    assert len(tries.script) == left
