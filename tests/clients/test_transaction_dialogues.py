"""The coordinator of transactions answers each request of the dialogues as Apache Kafka 4.1 does.

The same dialogues are held in memory in tests/core/coordination/transactions; here they go over the
wire. With ANABRANCH_TEST_PEER=kafka they are held with Kafka; ANABRANCH_TEST_RECORD=1 beside it
writes the answers down.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time

import pytest
from confluent_kafka.admin import NewTopic
from tests.clients.adapters import SECONDS
from tests.clients.groups.conftest import GroupNode
from tests.clients.members import until
from tests.core.coordination.transactions.dialogues import (
    DIALOGUES,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Talk,
)
from tests.core.coordination.transactions.test_kafka_answers import (
    RECORDED,
    RECORDED_AT,
    as_recorded,
)

from anabranch.client.connection import Connection
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest

STATE_TOPIC = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class OverTheWire:
    """One connection, one request at a time."""

    def __init__(self, node):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        port = int(node.bootstrap.rpartition(":")[2])
        self._connection = self._do(Connection.open("127.0.0.1", port, client_id="dialogue"))

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    def send(self, message, version):
        return self._do(self._connection.send(message, version))

    def advance(self, milliseconds):
        """Time is the matter here: a transaction has to be late."""
        time.sleep(milliseconds / 1000)

    def coordinates(self):
        """Whether the node coordinates ids and groups."""
        answers = [
            self.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"]), 4)
            for kind in (0, 1)
        ]
        return not any(each.error_code for answer in answers for each in answer.coordinators)

    def close(self):
        self._do(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def wire(tmp_path_factory):
    """A node with the dialogues' settings and topic, whose coordinators have been found once."""
    running = GroupNode(tmp_path_factory.mktemp("dialogues"), **SETTINGS, **STATE_TOPIC)
    try:
        running.start()
        running.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
        sender = OverTheWire(running)
        until(sender.coordinates, "coordinators")
        Talk(sender, "first").init()  # producer id 0, which answers about unknown ids have too
        yield sender
        sender.close()
    finally:
        running.close()


def written():
    """The record as JSON, one line an answer."""
    dialogues = [
        f"{json.dumps(name)}: [\n " + ",\n ".join(map(json.dumps, answers)) + "\n]"
        for name, answers in sorted(RECORDED.items())
    ]
    return "{\n" + ",\n".join(dialogues) + "\n}\n"


@pytest.mark.parametrize("name", DIALOGUES)
def test_as_kafka(wire, name):
    talk = Talk(wire, f"dialogue-{name}")
    DIALOGUES[name](talk)
    if os.environ.get("ANABRANCH_TEST_RECORD"):
        RECORDED[name] = talk.said
        RECORDED_AT.write_text(written())
    is_kafka = os.environ.get("ANABRANCH_TEST_PEER") == "kafka"
    assert (talk.said if is_kafka else as_recorded(name, talk.said)) == RECORDED[name]
