"""Events on processes that go on in the background, without processes."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.metadata.image import MetadataImage
from anabranch.sim.rehearsal.model import Action
from anabranch.testing.nodes import ClusterError
from anabranch.testing.rehearsal.actions import EventPerformer
from anabranch.testing.rehearsal.stage import as_noticed

PATIENCE_SECONDS = 0.05


class Machines:
    """Brokers of which nothing is done."""

    def __init__(self):
        self.started = []

    def kill(self, broker): ...

    pause = resume = wipe = kill

    def start(self, broker):
        self.started.append(broker)

    def shut_down(self, broker):
        if broker == 3:
            raise ClusterError("Broker 3 did not stop.")


class NeverWhole:
    """Sees a cluster in which a replica is always missing."""

    image = MetadataImage.empty()

    def follow(self): ...


class Roll:
    action, down_us = Action.ROLL, 0


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


def test_brokers_that_end_at_one_moment_do_so_in_the_order_that_was_simulated():
    assert as_noticed((1, 2, 3), ["2 out of the ISR; ELR is 2", "1 out of the ISR"]) == (2, 1, 3)
    assert as_noticed((11, 1), ["1 is elected; 1,11 out of the ISR"]) == (1, 11)
    assert as_noticed((2, 1), []) == (2, 1)
