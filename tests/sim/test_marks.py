"""A machine that has something to be done has marked itself: whole schedules, looked at step by step.

Nothing is polled at the end of a step, so a mark that is missing would leave a request unsent, or a
timer unset, until the machine marks itself for another reason. After each step of each simulated
node, what is not marked must have no effects, and no deadline before the one that its timer rings
at.
"""

from __future__ import annotations

import pytest

from anabranch.core.step import drain
from anabranch.core.types import NEVER_MS
from anabranch.sim import node as nodes
from anabranch.sim.alarm import Alarm
from anabranch.sim.node import SimNode
from anabranch.sim.schedule import run_schedule

SEEDS = (8, 21, 34, 100, 124)
"""Two of diskless topics."""


class Looks:
    """Looks at a node after each of its steps."""

    def __init__(self) -> None:
        self.steps = self.diskless_steps = 0
        self.missing: set[str] = set()

    def drain(self, left, performer) -> None:
        drain(left, performer)
        if isinstance(performer, SimNode) and not left.is_draining:
            self.steps += 1
            self.look(performer)

    def look(self, node: SimNode) -> None:
        broker = node.broker
        assert not broker.mailbox.due.marked
        if broker.replication.take_effects():
            self.missing.add("replication has requests to send")
        if not armed(node.replicating._alarm):
            self.missing.add("replication has an earlier deadline")
        if broker.peers.take_effects():
            self.missing.add("peers have questions to ask")
        if not armed(node._groups_alarm):
            self.missing.add("coordinators have an earlier deadline")
        if not armed(node._waits_alarm):
            self.missing.add("requests that wait have an earlier deadline")
        if node.diskless is not None and node.diskless._is_begun:
            self.look_at_diskless(node)

    def look_at_diskless(self, node: SimNode) -> None:
        self.diskless_steps += 1
        performer, machine = node.diskless, node.broker.diskless
        due_ms = machine.next_tick_ms
        rings_ms = NEVER_MS if performer._timer is None else performer._timer_ms
        if due_ms < rings_ms:
            self.missing.add("diskless topics have an earlier deadline")
        if due_ms > node.broker.steady_ms and machine.take_effects():
            self.missing.add("diskless topics have calls to make")


def armed(alarm: Alarm) -> bool:
    """Whether an alarm rings as early as what it is for."""
    due_ms = alarm._due()
    if due_ms is None or due_ms == NEVER_MS:
        return True
    return alarm._timer is not None and alarm._due_ms <= due_ms


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_marked_wants_nothing(seed, monkeypatch):
    looks = Looks()
    monkeypatch.setattr(nodes, "drain", looks.drain)
    outcome = run_schedule(seed)
    assert not looks.missing
    assert outcome.ok, outcome.sentence
    assert looks.steps > 1_000
    assert bool(looks.diskless_steps) == (seed in (100, 124))
