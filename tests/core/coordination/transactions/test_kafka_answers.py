"""Every answer of the dialogues is Apache Kafka 4.1's, in memory and without waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.core.coordination.transactions.dialogues import (
    DIALOGUES,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Talk,
)
from tests.core.coordination.transactions.transaction_world import TransactionWorld

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.codec import decode, encode

RECORDED_AT = Path(__file__).with_name("kafka_answers.json")
RECORDED = json.loads(RECORDED_AT.read_text())
NEWEST = {24: 5, 27: 2}
"""Versions of what this broker asks of itself."""
STEP_MS = 10
STRICTER = {"a_late_transaction": (3, 4)}
"""Where a producer that the coordinator fenced ends its transaction: it is told so here, and by Kafka
the state, or the epoch that follows its own."""


class InMemory(TransactionWorld):
    """A broker that coordinates, leads, and takes its own markers."""

    def perform(self):
        super().perform()
        asks, self.asks = self.asks, []
        self.due += asks

    def __init__(self, **config):
        self.due = []
        super().__init__(brokers=(1,), **config)

    def pump(self):
        """Carry out what this broker asks of itself."""
        while self.due:
            asked = self.due.pop(0)
            answer = self.ask(asked.message, NEWEST[asked.message.api_key])
            assert not isinstance(answer, list), asked
            self.broker.peers.answered(asked, answer)
            self.settle()

    def send(self, message, version):
        answer = self.ask(message, version)
        self.pump()
        if isinstance(answer, list):
            assert answer, "nobody answered"
            answer = answer[0]
        encoded = b"".join(map(bytes, encode(answer, version)))
        return decode(type(answer), memoryview(encoded), version)

    def advance(self, milliseconds):
        for _ in range(milliseconds // STEP_MS):
            super().advance(STEP_MS)
            self.pump()


def as_recorded(name, said):
    """What was said, with Kafka's words where ours are stricter, and are as they should be."""
    said = list(said)
    for place in STRICTER.get(name, ()):
        assert said[place][1]["error_code"] == ErrorCode.PRODUCER_FENCED
        said[place] = RECORDED[name][place]
    return said


@pytest.mark.parametrize("name", DIALOGUES)
def test_as_kafka(name):
    settings = {key.replace(".", "_"): text for key, text in SETTINGS.items()}
    world = InMemory(**settings)
    world.node.topic(TOPIC, PARTITIONS)
    world.node.topic(OFFSETS_TOPIC, 3, configs={"cleanup.policy": "compact"})
    world.follow()
    talk = Talk(world, f"dialogue-{name}")
    DIALOGUES[name](talk)
    assert as_recorded(name, talk.said) == RECORDED[name]


def test_nothing_is_recorded_that_nobody_asks():
    assert set(RECORDED) == set(DIALOGUES)
