"""A folder fails when it is opened, and another one has an older copy of what lies there: no client
gets to the copy, and what was acknowledged is there again when the folder is."""

from __future__ import annotations

import shutil
import signal

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode

from anabranch.core.log.checkpoints import RECOVERY_POINTS

PATIENCE_MS = 2_500
"""More than a heartbeat: with the first one the controller takes the folder for one that works."""


@pytest.fixture
def node(tmp_path):
    made = ProcessNode(f"{tmp_path}/a,{tmp_path}/b", metadata_log_dir=str(tmp_path / "m"))
    yield made
    made.close()


def stopped(node):
    node.process.send_signal(signal.SIGTERM)
    return node.ended()


def written(node, index, value):
    """Whether a record was acknowledged in time."""
    outcome = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "message.timeout.ms": PATIENCE_MS, "log_level": 0}
    )
    producer.produce("t", value, partition=index, on_delivery=lambda *told: outcome.append(told))
    producer.flush(20)
    ((error, _),) = outcome
    return error is None


def read(node, index, count):
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "log_level": 0}
    )
    reader.assign([confluent_kafka.TopicPartition("t", index, 0)])
    values = []

    def found():
        message = reader.poll(0.1)
        if message is not None and not message.error():
            values.append(message.value())
        return len(values) == count

    until(found)
    reader.close()
    return values


def test_an_older_copy_in_another_folder_is_not_served_in_place_of_what_is_away(node, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    node.start().ready()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)
    (there,) = until(lambda: [each.name for each in a.glob("t-*")])
    index = int(there.removeprefix("t-"))
    assert written(node, index, b"first")
    shutil.copytree(a / there, tmp_path / "copy")
    assert written(node, index, b"second")
    stopped(node)

    shutil.copytree(tmp_path / "copy", b / there)
    sound = (a / RECOVERY_POINTS).read_bytes()
    (a / RECOVERY_POINTS).write_bytes(b"damaged")
    node.start().ready()
    assert not written(node, index, b"lost"), "it was acknowledged on the older copy"
    assert written(node, 1 - index, b"other"), "the other folder works"
    _, errors = stopped(node)
    assert "a partition is offline: its folder is away" in errors

    (a / RECOVERY_POINTS).write_bytes(sound)
    node.start().ready()
    assert read(node, index, 2) == [b"first", b"second"]
    assert read(node, 1 - index, 1) == [b"other"]
