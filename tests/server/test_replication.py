"""The shell around replication: one step knows one time."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest

from anabranch.client.connection import Connection
from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.messages.alter_partition import AlterPartitionRequest
from anabranch.core.wire.messages.fetch import FetchRequest
from anabranch.server import replication
from anabranch.server.peers import PeerConnections
from anabranch.server.replication import ReplicationShell


class Ticked:
    """A replication to which something is due at 1,000 ms, and that notes when it was ticked."""

    def __init__(self, *effects):
        self.effects, self.failed = list(effects), []
        self.ticks = []
        self.was_ticked = asyncio.Event()

    @property
    def next_tick_ms(self):
        return NEVER_MS if self.ticks else 1_000

    def tick(self, now_ms):
        self.ticks.append(now_ms)
        self.was_ticked.set()

    def take_effects(self):
        taken, self.effects = self.effects, []
        return taken

    def fetch_failed(self, effect, _now_ms):
        self.failed.append(effect)
        self.was_ticked.set()

    alter_failed = fetch_failed


def test_what_is_due_when_a_millisecond_ends_within_the_step_is_due_to_all(monkeypatch):
    """A parked fetch compares its mark's time with that of the step's begin: were it woken by a
    later one, it would go on waiting, and nothing would wake it again."""
    clock = count(999)
    monkeypatch.setattr(replication, "steady_ms", lambda: next(clock))
    broker = SimpleNamespace(replication=Ticked(), steady_ms=0)

    def begin():
        broker.steady_ms = next(clock)

    async def ring():
        channel = SimpleNamespace(another=lambda _purpose: None)
        shell = ReplicationShell(broker, channel, None, begin, lambda: None)
        shell.perform()
        await broker.replication.was_ticked.wait()

    asyncio.run(ring())
    assert broker.replication.ticks == [broker.steady_ms]


FETCH = SendFetch(2, 0, FetchRequest())
ALTER = SendAlterPartition(AlterPartitionRequest(topics=[]), ())


@pytest.mark.parametrize("effect", [FETCH, ALTER])
async def test_a_request_that_fails_for_any_cause_is_given_back(monkeypatch, effect):
    """One that never ended would hold up all that follow; hosts like `a..b` end in UnicodeError."""

    async def refuse(*_how, **_more):
        raise UnicodeError("label empty or too long")

    monkeypatch.setattr(Connection, "open", refuse)
    endpoint = SimpleNamespace(host="a..b", port=9092)
    leader = SimpleNamespace(endpoint=lambda _listener: endpoint)
    broker = SimpleNamespace(
        broker_id=1, broker_epoch=1, steady_ms=0, config=BrokerConfig.of({}),
        image=SimpleNamespace(brokers={2: leader}), replication=Ticked(effect),
    )  # fmt: skip
    channel = SimpleNamespace(send=refuse)
    channel.another = lambda _purpose: channel
    connections = PeerConnections(broker, "PLAINTEXT")
    shell = ReplicationShell(broker, channel, connections, lambda: None, lambda: None)
    shell.perform()
    await broker.replication.was_ticked.wait()
    assert broker.replication.failed == [effect]
