"""Events on processes that go on in the background, without processes."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.metadata.image import MetadataImage
from anabranch.sim.rehearsal.model import Action
from anabranch.testing.nodes import ClusterError
from anabranch.testing.rehearsal import actions
from anabranch.testing.rehearsal.actions import EventPerformer
from anabranch.testing.rehearsal.machines import (
    SESSION_SECONDS,
    SESSION_SECONDS_MOST,
    session_seconds,
)
from anabranch.testing.rehearsal.patience import MOST_TIMES, Patience

PATIENCE_SECONDS = 0.05


class Machines:
    """Brokers of which nothing is done."""

    def __init__(self):
        self.started, self.stopped = [], []

    def kill(self, broker): ...

    pause = resume = wipe = kill

    def start(self, broker):
        self.started.append(broker)

    def shut_down(self, broker):
        if broker == 3:
            raise ClusterError("Broker 3 did not stop.")
        self.stopped.append(broker)


class NeverWhole:
    """Sees a cluster in which a replica is always missing."""

    image = MetadataImage.empty()

    def follow(self): ...


class Roll:
    action, at_us, down_us = Action.ROLL, 0, 0


class Restart:
    action, at_us, down_us = Action.RESTART, 10_000_000, 5_000_000


@pytest.fixture
def acting(monkeypatch):
    acting = EventPerformer(Machines(), NeverWhole())
    monkeypatch.setattr(acting, "_is_whole", lambda: False)
    return acting


async def test_a_roll_that_waits_for_what_never_comes_back_ends_with_the_rehearsal(acting):
    await acting.do(Roll, (1, 2))
    async with asyncio.timeout(20):
        await acting.end(PATIENCE_SECONDS)
    assert acting.machines.started == [1]


async def test_what_failed_in_the_background_is_said(acting):
    await acting.do(Roll, (3,))
    with pytest.raises(ClusterError, match="Broker 3 did not stop"):
        await acting.end(20)


async def test_a_broker_is_down_until_the_simulated_one_is_started(acting, monkeypatch):
    monkeypatch.setattr(actions, "DOWN_SECONDS", 0)
    acting.now_us = 14_999_999
    await acting.do(Restart, (2,))
    await asyncio.sleep(3 * actions.LOOK_SECONDS)
    assert acting.machines.stopped == [2] and acting.machines.started == []
    acting.now_us = 15_000_000
    await acting.end(20)
    assert acting.machines.started == [2] and not acting.is_busy


def test_patience_lasts_while_something_moves():
    patience = Patience(10, 100)
    assert not patience.is_over("a", 100) and not patience.is_over("a", 109)
    assert not patience.is_over("b", 110) and not patience.is_over("b", 119)
    assert patience.is_over("b", 120)


def test_patience_ends_with_what_moves_for_ever():
    patience, ended = Patience(10, 0), None
    for second in range(1_000):
        if ended is None and patience.is_over(second, second):
            ended = second
    assert ended == 10 * MOST_TIMES


def test_sessions_are_longer_on_a_slow_machine_and_bounded():
    assert session_seconds(0.1) == SESSION_SECONDS
    assert SESSION_SECONDS < session_seconds(1.5) < session_seconds(2) < SESSION_SECONDS_MOST
    assert session_seconds(60) == SESSION_SECONDS_MOST
