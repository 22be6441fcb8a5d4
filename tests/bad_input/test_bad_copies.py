"""Copies of a broker's folder, started beside it and after it: no acknowledged record is replaced."""

from __future__ import annotations

import shutil
import time

import confluent_kafka
import pytest
from bad_kit import SECONDS, RunningNode, eventually
from cluster_kit import ended
from confluent_kafka.admin import AdminClient, NewTopic
from node_kit import free_port

from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = "alone"
SESSION_MS = 60_000
"""Far longer than a restart takes: who returns sooner has not waited for its old session."""
QUICKLY_S = 20
LEADER_NOT_AVAILABLE = 5


class Pair:
    """A controller that keeps no partitions, and broker 1, the only replica of a topic."""

    def __init__(self, folder):
        self.folder = folder
        self.controller_port = free_port()
        self.controller = RunningNode(
            folder / "controller", port=self.controller_port, **{
                "node.id": "9",
                "process.roles": "controller",
                "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}",
                "metadata.store.url": f"sqlite://{folder}/metadata.db",
                "broker.session.timeout.ms": str(SESSION_MS),
            },
        )  # fmt: skip
        self.broker = self.made("broker")
        self.acked = []

    def made(self, name, port=None, **settings):
        """Broker 1 on a folder, at a port of its own."""
        port = port or free_port()
        return RunningNode(
            self.folder / name, port=port, **{
                "node.id": "1",
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
                **settings,
            },
        )  # fmt: skip

    def start(self):
        self.controller.start()
        self.broker.start().ready()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        settings = {"unclean.leader.election.enable": "false"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(SECONDS)
        return self

    def close(self):
        self.broker.close()
        self.controller.close()

    def write(self, count=100):
        """Records that broker 1 acknowledges."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.bootstrap, "acks": "all"}
        )
        first, errors = len(self.acked), []
        values = [b"%d" % number for number in range(first, first + count)]
        for value in values:
            producer.produce(TOPIC, value, on_delivery=lambda fault, _: errors.append(fault))
        assert producer.flush(SECONDS) == 0
        assert errors == [None] * count
        self.acked += values

    def read(self):
        """All records of the topic."""
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "copies"}
        )
        place = confluent_kafka.TopicPartition(TOPIC, 0, 0)
        try:
            _, end = reader.get_watermark_offsets(place, SECONDS)
            reader.assign([place])
            found = []
            while len(found) < end:
                messages = reader.consume(end - len(found), SECONDS)
                assert messages, f"{len(found)} of {end} records"
                found += [message.value() for message in messages]
        finally:
            reader.close()
        return found

    def copy(self, name):
        """The broker's folder as it is now; its process may be running."""
        shutil.copytree(self.broker.folder, self.folder / name)


@pytest.fixture
def pair(tmp_path):
    made = Pair(tmp_path)
    try:
        yield made.start()
    finally:
        made.close()


def restarted(pair, name, port=None):
    pair.broker = pair.made(name, port)
    pair.broker.start().ready()


def led(node):
    """Whether somebody leads the topic's partition, as a node tells it."""
    from bad_kit import Raw

    with Raw(node) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        found = client.ask(request, 12).topics[0].partitions[0]
    assert found.error_code in (0, LEADER_NOT_AVAILABLE)
    return found.leader_id == 1


def test_a_process_on_a_copied_folder_does_not_displace_the_living_broker(pair):
    pair.write()
    pair.copy("copy")
    pair.write()
    twin = pair.made("copy", **{"initial.broker.registration.timeout.ms": "4000"})
    try:
        twin.start()
        line = ended(twin)
    finally:
        twin.close()
    assert "another live broker has node.id=1" in line and "copy of the other's folders" in line
    assert pair.broker.process.poll() is None
    pair.write()
    assert pair.read() == pair.acked


@pytest.mark.slow
@pytest.mark.parametrize("copied", ["while it ran", "after a stop"])
def test_a_copy_that_is_older_than_the_broker_replaces_no_record(pair, copied):
    """With the only replica gone, nobody leads until its folder is back or an operator decides."""
    pair.write()
    if copied == "after a stop":
        pair.broker.process.terminate()
        pair.broker.process.wait(SECONDS)
    pair.copy("copy")
    if copied == "while it ran":
        pair.broker.kill()
    port = pair.broker.port
    restarted(pair, "broker", port)
    eventually(lambda: led(pair.broker), "a leader")
    pair.write()
    pair.broker.kill()
    original = pair.broker
    twin = pair.broker = pair.made("copy")
    twin.start().ready()
    assert not led(twin)
    twin.kill()
    restarted(pair, "copy", twin.port)
    assert not led(pair.broker), "nor after a restart on the copy"
    pair.broker.kill()
    restarted(pair, "broker", original.port)
    admin = AdminClient({"bootstrap.servers": pair.broker.bootstrap})
    place = confluent_kafka.TopicPartition(TOPIC, 0)
    asked = admin.elect_leaders(confluent_kafka.ElectionType.UNCLEAN, [place])
    assert asked.result(SECONDS)[place] is None
    eventually(lambda: led(pair.broker), "a leader")
    assert pair.read() == pair.acked


@pytest.mark.parametrize("where", ["at its port", "at another port"])
def test_a_killed_broker_is_back_long_before_its_session_ends(pair, where):
    pair.write()
    for _ in range(5):
        port = pair.broker.port if where == "at its port" else None
        pair.broker.kill()
        begin = time.monotonic()
        restarted(pair, "broker", port)
        eventually(lambda: led(pair.broker), "a leader")
        assert time.monotonic() - begin < QUICKLY_S < SESSION_MS / 1000
    assert pair.read() == pair.acked
