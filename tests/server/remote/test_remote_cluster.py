"""Remote logs of real nodes: what leaders copy, brokers drop, and a deleted topic leaves behind.

No topic can have a remote log yet, so the refusal is lifted here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tests.clients.members import until
from tests.server.three_kit import (
    IDS,
    bootstrap_of,
    partitions_of,
    produce,
    running,
    three_threads,
)

from anabranch.core.settings import validation

SEGMENT_BYTES = 16_384
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(
        validation, "_refuse_remote_storage", validation.refuse_remote_contradictions
    )
    monkeypatch.setattr("anabranch.core.remote.unfinished.PUTS_END_MS", 0)
    (tmp_path / "objects").mkdir()
    cluster = three_threads(
        tmp_path,
        remote_log_storage_system_enable="true",
        remote_storage_url=f"file://{tmp_path}/objects",
        diskless_coordinator_url=f"sqlite://{tmp_path}/coordinator.db",
        remote_log_manager_task_interval_ms="200",
    )
    with running(cluster) as started:
        yield started


def replica_of(node):
    return node.node.broker.broker.partitions.get("t", 0)


def facts_of(node):
    """What the coordinator knows of the partition."""
    replica = replica_of(node)
    key = (replica.topic_id, 0)
    call = node.node.stores.stores.remote.look(key)
    return asyncio.run_coroutine_threadsafe(call, node._loop).result(20)


def copied(node):
    """The finished segments that the partition's readers would use, by offset."""
    facts = facts_of(node)
    found = [] if facts is None else [each for each in facts.segments if each.is_finished]
    return {each.start_offset: each for each in found}


def remote_bytes(tmp_path, segment):
    [found] = (tmp_path / "objects").rglob(
        f"*/{segment.segment_id.hex()}/{segment.start_offset:020d}.log"
    )
    return found.read_bytes()


def local_files(tmp_path, node_id):
    """Start offset -> bytes of each closed segment on a node's disk."""
    files = sorted(Path(tmp_path / str(node_id) / "t-0").glob("*.log"))
    return {int(each.stem): each.read_bytes() for each in files[:-1]}


def all_is_copied(tmp_path, node_id, node):
    there = local_files(tmp_path, node_id)
    return bool(there) and there.keys() <= copied(node).keys()


def alter(admin, **values):
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(20)


def test_leaders_copy_each_segment_and_then_all_brokers_drop_theirs(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    for turn in range(6):
        produce(bootstrap, [b"first-%d-%d" % (turn, each) * 40 for each in range(30)])
    first = partitions_of(admin)[0].leader
    until(lambda: all_is_copied(tmp_path, first, nodes[first]))
    written = local_files(tmp_path, first)

    nodes[first].stop()
    until(lambda: partitions_of(admin)[0].leader not in (first, -1))
    for turn in range(6):
        produce(bootstrap, [b"second-%d-%d" % (turn, each) * 40 for each in range(30)])
    leader = partitions_of(admin)[0].leader
    until(lambda: all_is_copied(tmp_path, leader, nodes[leader]))
    written |= local_files(tmp_path, leader)
    segments = copied(nodes[leader])
    assert {each.leader_epoch for each in segments.values()} >= {0, 1}
    assert {at: remote_bytes(tmp_path, each) for at, each in segments.items()} == written

    alter(admin, local_retention_bytes="1")
    left = [each for each in IDS if each != first]
    ends = max(each.end_offset for each in segments.values())
    until(lambda: all(replica_of(nodes[each]).log.local_start_offset == ends for each in left))
    assert all(replica_of(nodes[each]).log.start_offset == 0 for each in left)
    assert {
        at: remote_bytes(tmp_path, each) for at, each in copied(nodes[leader]).items()
    } == written

    admin.delete_topics(["t"])["t"].result(20)
    until(lambda: not list((tmp_path / "objects").rglob("*.log")))
    remote = nodes[leader].node.stores.stores.remote

    def orphans():
        call = remote.orphans(100)
        return asyncio.run_coroutine_threadsafe(call, nodes[leader]._loop).result(20)

    until(lambda: not orphans())
