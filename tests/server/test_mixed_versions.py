"""Nodes of two versions in one cluster, across a real change of metadata records. R18.

PartitionRecord and PartitionChangeRecord have eligible leader replicas from version 2 on, which is
written from level 23 of metadata.version. `previous_version.py` knows no more than level 22.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import START_SECONDS
from tests.server.test_three_nodes import RECORDS
from tests.server.three_kit import IDS, Acks, bootstrap_of, is_whole, three_processes

from anabranch.core.metadata.features import BOOTSTRAP_LEVELS, ELR_VERSION, METADATA_VERSION
from anabranch.core.wire.batch import walk
from anabranch.core.wire.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    read_record_head,
)
from anabranch.core.wire.records import decode_records

PREVIOUS = [sys.executable, str(Path(__file__).with_name("previous_version.py"))]
TODAY = [sys.executable, "-m", "anabranch"]
OLD_LEVEL, NEW_LEVEL = 22, BOOTSTRAP_LEVELS[METADATA_VERSION]
SECONDS = 60
pytestmark = pytest.mark.timeout(300)
"""Many restarts and commands, each a process: on a machine that others use they take their time."""


class Cluster:
    """Three combined nodes, each of which may run in either version."""

    def __init__(self, tmp_path):
        self.store = tmp_path / "metadata.db"
        self.nodes = three_processes(tmp_path)
        self.bootstrap = bootstrap_of(self.nodes)

    def start(self, each, version):
        node = self.nodes[each]
        node._words = [*version, *node._words[node._words.index("serve") :]]
        return node.start()

    def restart(self, each, version):
        """Stop a node in order, run it in a version, and wait until nothing is missing."""
        self.stop(each)
        self.start(each, version).ready()
        until(lambda: is_whole(self.bootstrap))

    def stop(self, each):
        node = self.nodes[each]
        node.process.send_signal(signal.SIGTERM)
        _, errors = node.process.communicate(timeout=START_SECONDS)
        assert node.process.returncode == 0, errors

    def close(self):
        for node in self.nodes.values():
            node.close()

    def verb(self, *words):
        command = [*TODAY, "cluster", *words, "--bootstrap-server", self.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)

    def feature(self, name):
        told = json.loads(self.verb("features", "--json").stdout)
        return next(each for each in told if each["feature"] == name)

    def record_versions(self):
        """The versions in which records of partitions lie in the store."""
        with sqlite3.connect(self.store) as connection:
            payloads = [row[0] for row in connection.execute("SELECT payload FROM log")]
        found = set()
        for payload in payloads:
            for position, header in walk(payload):
                for record in () if header.is_control else decode_records(payload, position):
                    type_id, version, _ = read_record_head(record.value)
                    if type_id in (PartitionRecord.type_id, PartitionChangeRecord.type_id):
                        found.add(version)
        return found


@pytest.fixture
def old(tmp_path):
    """A cluster of which every node runs the previous version."""
    cluster = Cluster(tmp_path)
    for each in IDS:
        cluster.start(each, PREVIOUS)
    for node in cluster.nodes.values():
        node.ready()
    yield cluster
    cluster.close()


def create(cluster, name="t"):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic(name, 3, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[name].result(20)
    until(lambda: is_whole(cluster.bootstrap, name))
    return admin


def eligible(cluster):
    """Partitions of which somebody is an eligible leader replica."""
    words = [*TODAY, "topics", "describe", "--json", "--bootstrap-server", cluster.bootstrap]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return [each for topic in json.loads(done.stdout) for each in topic["partitions"]
            if each.get("elr")]  # fmt: skip


def test_r18_versions_run_side_by_side_until_a_command_raises_the_level(old):
    create(old)
    acks = Acks(old.bootstrap)
    until(lambda: len(acks.times) > RECORDS)

    old.restart(1, TODAY)
    old.restart(2, TODAY)
    old.restart(3, PREVIOUS)  # if it was the active controller, one of today's is now
    feature = old.feature(METADATA_VERSION)
    assert (feature["level"], feature["held_back_by"]) == (OLD_LEVEL, [3])
    create(old, "beside")  # decided by one, followed and led by the other
    said = old.verb("upgrade").stdout
    assert (
        f"{METADATA_VERSION} could be at {NEW_LEVEL}: install the newer version on broker 3" in said
    )
    refused = old.verb("upgrade", "--feature", f"{METADATA_VERSION}={NEW_LEVEL}")
    assert refused.returncode == 1
    assert f"only supports versions 7-{OLD_LEVEL}" in refused.stderr
    assert old.feature(METADATA_VERSION)["level"] == OLD_LEVEL
    assert old.record_versions() == {1}

    old.restart(3, TODAY)
    assert old.feature(METADATA_VERSION)["level"] == OLD_LEVEL, "nobody raised it"
    assert old.record_versions() == {1}
    dry = old.verb("upgrade", "--dry-run")
    assert f"{METADATA_VERSION} would go from level {OLD_LEVEL} to {NEW_LEVEL}" in dry.stdout
    assert old.feature(METADATA_VERSION)["level"] == OLD_LEVEL
    done = old.verb("upgrade")
    assert done.returncode == 0, done.stderr
    assert f"{METADATA_VERSION} went from level {OLD_LEVEL} to {NEW_LEVEL}" in done.stdout
    assert f"{ELR_VERSION} went from level 0 to 1" in done.stdout

    before = len(acks.times)
    until(lambda: len(acks.times) > before + RECORDS)
    acks.stop()
    assert not acks.failures
    old.stop(1)
    old.nodes[2].kill()
    until(lambda: eligible(old))
    assert old.record_versions() == {1, 2}
    for each in (1, 2):
        old.start(each, TODAY).ready()
    until(lambda: is_whole(old.bootstrap))


@pytest.mark.slow
def test_r18_a_node_of_the_previous_version_cannot_join_any_more(old):
    create(old)
    for each in IDS:
        old.restart(each, TODAY)
    assert old.verb("upgrade").returncode == 0
    create(old, "after")
    old.stop(3)
    code, errors = old.start(3, PREVIOUS).ended()
    said = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert code == 1
    assert "Traceback" not in errors
    assert len(said) == 1
    assert "this version of Anabranch is too old for the cluster" in said[0]
    assert "install a newer version on this node" in said[0]
    print(said[0])

    # Alone with the store it could be controller, were it not for what it cannot read.
    for each in (1, 2):
        old.stop(each)
    code, errors = old.start(2, PREVIOUS).ended()
    assert code == 1
    assert "this version of Anabranch is too old for the cluster" in errors.splitlines()[-1]
    for each in IDS:
        old.start(each, TODAY)
    for each in IDS:
        old.nodes[each].ready()
    until(lambda: is_whole(old.bootstrap))
