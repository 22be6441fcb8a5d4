"""R15: the coordinator answers each request of the dialogues as Apache Kafka 4.1 answers it.

The same dialogues are held in memory in tests/core/coordination/groups; here they go over the wire. With
ANABRANCH_TEST_PEER=kafka they are held with Kafka; ANABRANCH_TEST_RECORD=1 beside it writes the
answers down.
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
from tests.core.coordination.groups.dialogues import DIALOGUES, PARTITIONS, SETTINGS, TOPIC, Talk
from tests.core.coordination.groups.test_kafka_answers import RECORDED, RECORDED_AT

from anabranch.client.connection import Connection
from anabranch.core.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest


class OverTheWire:
    """A connection for each who; requests of one are answered in order."""

    def __init__(self, node):
        self._port = int(node.bootstrap.rpartition(":")[2])
        self._connections = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def send(self, message, version, who):
        if who not in self._connections:
            opening = Connection.open("127.0.0.1", self._port, client_id=who)
            self._connections[who] = self._do(opening).result(SECONDS)
        sent = threading.Event()
        answer = self._do(self._send(self._connections[who], message, version, sent))
        assert sent.wait(SECONDS)
        return lambda: answer.result(SECONDS)

    async def _send(self, connection, message, version, sent):
        sending = asyncio.ensure_future(connection.send(message, version))
        await asyncio.sleep(0)
        sent.set()
        return await sending

    def advance(self, milliseconds):
        """Time is the matter here: a session has to run out."""
        time.sleep(milliseconds / 1000)

    def coordinates(self, groups):
        """Whether the node answers for all these groups."""
        names = list(groups)
        found = self.send(FindCoordinatorRequest(coordinator_keys=names), 4, "a")().coordinators
        said = self.send(DescribeGroupsRequest(groups=names), 4, "a")().groups
        return all(each.error_code == 0 for each in [*found, *said])

    def rebalancing(self, group):
        def found():
            (described,) = self.send(DescribeGroupsRequest(groups=[group]), 4, "watcher")().groups
            return described.group_state == "PreparingRebalance"

        until(found, f"{group} in a rebalance")

    def close(self):
        for each in self._connections.values():
            self._do(each.close()).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A node with the dialogues' settings and topic, whose coordinator has been found once."""
    running = GroupNode(tmp_path_factory.mktemp("small"), **SETTINGS)
    try:
        running.start()
        running.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
        wire = OverTheWire(running)
        until(lambda: wire.coordinates(f"{number}" for number in range(20)), "coordinators")
        wire.close()
        yield running
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
def test_as_kafka(small, name):
    wire = OverTheWire(small)
    talk = Talk(wire, f"dialogue-{name}")
    try:
        DIALOGUES[name](talk)
    finally:
        wire.close()
    if os.environ.get("ANABRANCH_TEST_RECORD"):
        RECORDED[name] = talk.said
        RECORDED_AT.write_text(written())
    assert talk.said == RECORDED[name]
