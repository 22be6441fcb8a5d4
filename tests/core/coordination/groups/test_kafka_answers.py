"""R15: every answer of the dialogues is Apache Kafka 4.1's, in memory and without waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.core.coordination.groups import dialogues_of_members, dialogues_of_offsets
from tests.core.coordination.groups.dialogues import DIALOGUES, PARTITIONS, SETTINGS, TOPIC, Talk
from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.wire.codec import decode, encode

RECORDED_AT = Path(__file__).with_name("kafka_answers.json")
RECORDED = json.loads(RECORDED_AT.read_text())
FILES = (dialogues_of_members, dialogues_of_offsets)
"""Their import enters the dialogues."""


class InMemory:
    """Carries requests to handlers; who waits is answered by what others say, or by time."""

    def __init__(self, world):
        self._world = world

    def send(self, message, version, who):
        outcome = self._world.ask(message, version, client_id=who)

        def answer():
            response = outcome
            if isinstance(response, list):
                assert response, "nobody answered"
                response = response[0]
            encoded = b"".join(map(bytes, encode(response, version)))
            return decode(type(response), memoryview(encoded), version)

        return answer

    def rebalancing(self, group):
        assert self._world.state(group) == "PreparingRebalance"

    def advance(self, milliseconds):
        for _ in range(milliseconds // 100):
            self._world.advance(100)


@pytest.mark.parametrize("name", DIALOGUES)
def test_as_kafka(name):
    settings = {key.replace(".", "_"): text for key, text in SETTINGS.items()}
    world = GroupWorld(**settings)
    world.node.topic(TOPIC, PARTITIONS)
    talk = Talk(InMemory(world), f"dialogue-{name}")
    DIALOGUES[name](talk)
    assert talk.said == RECORDED[name]


def test_nothing_is_recorded_that_nobody_asks():
    assert set(RECORDED) == set(DIALOGUES)
