"""The shell around replication: one step knows one time."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace

from anabranch.core.replication.replication import FAR_MS
from anabranch.server import replicating
from anabranch.server.replicating import ReplicationShell


class Ticked:
    """A replication to which something is due at 1,000 ms, and that notes when it was ticked."""

    def __init__(self):
        self.ticks = []
        self.was_ticked = asyncio.Event()

    @property
    def next_tick_ms(self):
        return FAR_MS if self.ticks else 1_000

    def tick(self, now_ms):
        self.ticks.append(now_ms)
        self.was_ticked.set()

    def take_effects(self):
        return []


def test_what_is_due_when_a_millisecond_ends_within_the_step_is_due_to_all(monkeypatch):
    """A parked fetch compares its mark's time with that of the step's begin: were it woken by a
    later one, it would go on waiting, and nothing would wake it again."""
    clock = count(999)
    monkeypatch.setattr(replicating, "steady_ms", lambda: next(clock))
    broker = SimpleNamespace(replication=Ticked(), steady_ms=0)

    def begin():
        broker.steady_ms = next(clock)

    async def ring():
        channel = SimpleNamespace(another=lambda _purpose: None)
        shell = ReplicationShell(broker, channel, "PLAINTEXT", begin, lambda: None)
        shell.perform()
        await broker.replication.was_ticked.wait()

    asyncio.run(ring())
    assert broker.replication.ticks == [broker.steady_ms]
