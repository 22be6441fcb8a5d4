"""Reads of objects that are late are made twice; what nobody foresaw ends no task for good."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.core.api.in_memory_node import InMemoryNode

from anabranch.core.diskless import admission
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.retention_rounds import Shortened
from anabranch.core.diskless.rows import Change, LogKey, LogState
from anabranch.server.diskless.rows import LogRowsShell
from anabranch.server.diskless.shell import DisklessShell, Hedges, hedged


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
    asked = asyncio.ensure_future(hedged(calls, 60, Hedges(1)))
    (await calls.nth(1)).set_result("bytes")
    assert await asked == "bytes"
    assert len(calls.made) == 1


@pytest.mark.parametrize("answers", [1, 2])
async def test_of_two_calls_the_first_answer_counts(answers):
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 0, Hedges(1)))
    await calls.nth(2)
    calls.made[answers - 1].set_result(answers)
    assert await asked == answers
    assert calls.made[2 - answers].cancelled()


@pytest.mark.parametrize("is_apart", [True, False])
async def test_one_that_fails_leaves_it_to_the_other(is_apart):
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 0, Hedges(1)))
    await calls.nth(2)
    calls.made[0].set_exception(ObjectsAway("down"))
    if is_apart:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    calls.made[1].set_result("bytes")
    assert await asked == "bytes"


async def test_what_the_last_one_raises_is_raised():
    calls = Calls()
    asked = asyncio.ensure_future(hedged(calls, 60, Hedges(1)))
    (await calls.nth(1)).set_exception(ObjectsAway("down"))
    with pytest.raises(ObjectsAway):
        await asked


async def test_only_some_of_the_calls_that_are_late_are_made_twice():
    calls, hedges = Calls(), Hedges(2)
    asked = [asyncio.ensure_future(hedged(calls, 0, hedges)) for _ in range(4)]
    await calls.nth(6)
    await asyncio.sleep(0.01)
    assert len(calls.made) == 6
    for each in calls.made:
        each.set_result("bytes")
    assert await asyncio.gather(*asked) == ["bytes"] * 4
    assert hedges.left == 2


async def test_a_call_that_is_given_up_leaves_the_second_one_to_others():
    calls, hedges = Calls(), Hedges(1)
    asked = asyncio.ensure_future(hedged(calls, 0, hedges))
    await calls.nth(2)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert hedges.left == 1


class Failing:
    """A call that fails once as nobody foresaw, and then works."""

    def __init__(self):
        self.count = 0
        self.worked = asyncio.Event()

    async def __call__(self, *_arguments):
        self.count += 1
        if self.count == 1:
            raise RuntimeError("nobody foresaw this")
        self.worked.set()
        return []


async def test_rows_are_kept_on_after_a_call_failed_in_whatever_way():
    control, listed = Failing(), Failing()
    rows = LogRowsShell()
    rows.opened(SimpleNamespace(take_control=control, topics=listed))
    rows.began(1, 0)
    image = SimpleNamespace(next_offset=0, topics_by_id={}, topic_by_id=lambda _: None)
    rows.follow(
        image, SimpleNamespace(deleted_topics=(), changed_partitions=(), changed_configs=())
    )
    async with asyncio.timeout(10):
        await listed.worked.wait()
    await rows.stop()


async def test_retention_goes_on_after_a_round_failed_in_whatever_way():
    node = InMemoryNode(config={"log.retention.check.interval.ms": "1"})
    node.topic("t", configs={"diskless.enable": "true"})
    shell, states = DisklessShell(node.broker, *[lambda: None] * 3), Failing()
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(states=states))
    retaining = asyncio.ensure_future(shell._retain())
    async with asyncio.timeout(10):
        await states.worked.wait()
    retaining.cancel()


async def test_what_retention_deletes_is_told_to_the_broker():
    told = []
    broker = SimpleNamespace(diskless=SimpleNamespace(changed=told.extend), steady_ms=0)
    shell = DisklessShell(broker, *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=None)
    change = Change(LogKey(b"0" * 16, 0), LogState(5, 9))
    await shell._look_over(Shortened(change))
    assert told == [change]


async def test_a_broker_registers_after_a_call_failed_in_whatever_way(monkeypatch):
    monkeypatch.setattr(admission, "RETRY_MS", 0)
    known = asyncio.Event()
    machine = SimpleNamespace(registered=lambda *_identity: known.set())
    broker = SimpleNamespace(diskless=machine, broker_id=1, broker_epoch=5, steady_ms=0)
    shell = DisklessShell(broker, *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(register=Failing()))
    shell._keep_up = lambda *_: None
    await asyncio.wait_for(shell._register(), 10)
    assert known.is_set()


async def test_a_broker_that_was_deposed_asks_no_more_and_tells_what_waits():
    asked, told = [], []

    async def register(*identity):
        asked.append(identity)
        raise Deposed("epoch 9")

    machine = SimpleNamespace(deposed=lambda epoch, why, _now_ms: told.append((epoch, why)))
    broker = SimpleNamespace(diskless=machine, broker_id=1, broker_epoch=5, steady_ms=0)
    shell = DisklessShell(broker, *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(register=register))
    await asyncio.wait_for(shell._register(), 10)
    assert asked == [(1, 5)]
    ((epoch, why),) = told
    assert epoch == 5
    assert why.startswith("epoch 9; another process has this broker's place")


@pytest.mark.parametrize("pause_ms", [0, 70])
async def test_the_watch_is_opened_again_when_the_machine_says(monkeypatch, pause_ms):
    opened, slept = [], []
    again = asyncio.Event()

    async def changes():
        opened.append(list(slept))
        if len(opened) == 2:
            again.set()
            await asyncio.Event().wait()
        yield []

    async def sleep(seconds, sleep=asyncio.sleep):
        if asyncio.current_task() is watching:
            slept.append(seconds)
        await sleep(0)

    machine = SimpleNamespace(watch_opened=lambda: None, watch_broken=lambda: pause_ms)
    shell = DisklessShell(SimpleNamespace(diskless=machine, steady_ms=0), *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(changes=changes))
    shell._is_checking = True
    monkeypatch.setattr("anabranch.server.diskless.shell.asyncio.sleep", sleep)
    watching = asyncio.ensure_future(shell._watch())
    await asyncio.wait_for(again.wait(), 10)
    assert opened == [[], [pause_ms / 1000]]
    watching.cancel()


async def test_a_watch_that_failed_in_whatever_way_is_said_once_and_its_return(monkeypatch):
    opened, said = [], []
    again = asyncio.Event()

    async def changes():
        opened.append(list(said))
        if len(opened) == 3:
            yield []
            again.set()
            await asyncio.Event().wait()
        raise ValueError("nobody foresaw this")

    log = SimpleNamespace(
        warning=lambda text, **told: said.append((text, told["why"])),
        info=lambda text, **_: said.append((text, "")),
    )
    monkeypatch.setattr("anabranch.server.diskless.shell.LOG", log)
    machine = SimpleNamespace(watch_opened=lambda: None, watch_broken=lambda: 0)
    shell = DisklessShell(SimpleNamespace(diskless=machine, steady_ms=0), *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(changes=changes))
    shell._is_checking = True
    watching = asyncio.ensure_future(shell._watch())
    await asyncio.wait_for(again.wait(), 10)
    failed = ("diskless records wait", "ValueError: nobody foresaw this")
    assert opened == [[], [failed], [failed]]
    assert said == [failed, ("diskless records are accepted again", "")]
    watching.cancel()


async def test_lags_are_measured_after_a_round_failed_in_whatever_way(monkeypatch):
    monkeypatch.setattr("anabranch.server.diskless.shell.LAG_SECONDS", 0)
    measured = asyncio.Event()
    machine = SimpleNamespace(
        by_key={1: None},
        lags=SimpleNamespace(forget_gone=lambda: None),
        measured=lambda *_page: measured.set(),
    )
    shell = DisklessShell(SimpleNamespace(diskless=machine, steady_ms=0), *[lambda: None] * 3)
    shell._stores = SimpleNamespace(coordinator=SimpleNamespace(states=Failing()))
    measuring = asyncio.ensure_future(shell._measure())
    await asyncio.wait_for(measured.wait(), 10)
    measuring.cancel()
