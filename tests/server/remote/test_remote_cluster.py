"""Remote logs of real nodes: what leaders copy, brokers drop, and a deleted topic leaves behind."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import kafka
import msgspec
import pytest
from confluent_kafka import Consumer, ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaConsumer
from tests.bad_input.bad_kit import Raw
from tests.clients.members import until
from tests.server.node_kit import ThreadNode
from tests.server.three_kit import (
    IDS,
    bootstrap_of,
    partitions_of,
    produce,
    running,
    three_threads,
)

from anabranch.core.api.p02_list_offsets import EARLIEST_LOCAL, LATEST_TIERED
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

SEGMENT_BYTES = 16_384
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "0",
}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setattr("anabranch.core.remote.unfinished.PUTS_END_MS", 0)
    (tmp_path / "objects").mkdir()
    cluster = three_threads(
        tmp_path,
        remote_log_storage_system_enable="true",
        remote_storage_url=f"file://{tmp_path}/objects",
        diskless_coordinator_url=f"sqlite://{tmp_path}/coordinator.db",
        remote_log_manager_task_interval_ms="200",
        log_flush_start_offset_checkpoint_interval_ms="200",
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


def states_of(node):
    facts = facts_of(node)
    return set() if facts is None else {each.state for each in facts.segments}


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


def objects(tmp_path):
    """Files of remote segments in the store."""
    return [each for each in (tmp_path / "objects").rglob("*.*") if "/remote/" in str(each)]


def local_files(tmp_path, node_id):
    """Start offset -> bytes of each closed segment on a node's disk."""
    files = sorted(Path(tmp_path / str(node_id) / "t-0").glob("*.log"))
    return {int(each.stem): each.read_bytes() for each in files[:-1]}


def all_is_copied(tmp_path, node_id, node):
    there = local_files(tmp_path, node_id)
    return bool(there) and there.keys() <= copied(node).keys()


def alter(admin, **values):
    """Set a topic's settings, or, for None, delete them."""
    kinds = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=kinds[value is None])
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(20)


def consumed(bootstrap, count, isolation="read_uncommitted", first=0):
    """The values from an offset on, as a consumer reads them that never resets its offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("t", 0, first)])
    found, until_s = [], time.monotonic() + 60
    while len(found) < count and time.monotonic() < until_s:
        for message in consumer.consume(500, 1):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def offsets(admin, spec):
    [answer] = admin.list_offsets({TopicPartition("t", 0): spec}).values()
    return answer.result(20).offset


def test_leaders_copy_each_segment_and_then_all_brokers_drop_theirs(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    values = [b"first-%d-%d-" % (turn, each) * 30 for turn in range(6) for each in range(30)]
    for at in range(0, len(values), 30):
        produce(bootstrap, values[at : at + 30])
    first = partitions_of(admin)[0].leader
    until(lambda: all_is_copied(tmp_path, first, nodes[first]))
    written = local_files(tmp_path, first)

    nodes[first].stop()
    until(lambda: partitions_of(admin)[0].leader not in (first, -1))
    more = [b"second-%d-%d-" % (turn, each) * 30 for turn in range(6) for each in range(30)]
    for at in range(0, len(more), 30):
        produce(bootstrap, more[at : at + 30])
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

    assert sorted(consumed(bootstrap, len(values + more))) == sorted(values + more)
    assert offsets(admin, OffsetSpec.earliest()) == 0
    shutil.rmtree(tmp_path / str(first) / "t-0")
    nodes[first] = ThreadNode.again(nodes[first]).start()
    until(lambda: first in partitions_of(admin)[0].isrs)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(20)
    until(lambda: replica_of(nodes[first]).is_leader)
    assert replica_of(nodes[first]).log.local_start_offset > 0  # what is older is remote alone
    until(lambda: epoch_end(nodes[first], 0) == (0, 0, len(values)))
    nodes[leader].stop()
    until(lambda: partitions_of(admin)[0].leader not in (leader, -1))
    assert sorted(consumed(bootstrap, len(values + more))) == sorted(values + more)
    leader = partitions_of(admin)[0].leader

    admin.delete_topics(["t"])["t"].result(20)
    until(lambda: not list((tmp_path / "objects").rglob("*.log")))
    remote = nodes[leader].node.stores.stores.remote

    def orphans():
        call = remote.orphans(100)
        return asyncio.run_coroutine_threadsafe(call, nodes[leader]._loop).result(20)

    until(lambda: not orphans())


def transactions(bootstrap):
    """Records of transactions, every other one of which is aborted; the values that count."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "pump"})
    producer.init_transactions(30)
    kept = []
    for turn in range(12):
        values = [b"%d-%d-" % (turn, each) * 60 for each in range(20)]
        producer.begin_transaction()
        for value in values:
            producer.produce("t", value)
        producer.flush(30)
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept += values
    return kept


def raw(node):
    return Raw(SimpleNamespace(port=int(node.node.bootstrap_servers.rpartition(":")[2])))


def ask(node, timestamp, version=9):
    """(error code, offset) for a special timestamp."""
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[part])]
    with raw(node) as client:
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        [answer] = client.ask(request, version).topics[0].partitions
    return ErrorCode(answer.error_code), answer.offset


def epoch_end(node, epoch):
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    with raw(node) as client:
        topics = [OffsetForLeaderTopic(topic="t", partitions=[part])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        [answer] = client.ask(request, 4).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


def test_readers_and_new_replicas_see_one_log_across_the_boundary(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    kept = transactions(bootstrap)
    leader = partitions_of(admin)[0].leader
    alter(admin, local_retention_bytes="1")
    until(lambda: replica_of(nodes[leader]).log.local_start_offset > 150)
    local_start = replica_of(nodes[leader]).log.local_start_offset
    assert ask(nodes[leader], EARLIEST_LOCAL) == (0, local_start)
    assert ask(nodes[leader], LATEST_TIERED) == (0, local_start - 1)
    assert ask(nodes[leader], -2) == (0, 0)
    assert epoch_end(nodes[leader], 0) == (0, 0, replica_of(nodes[leader]).end_offset)
    assert consumed(bootstrap, len(kept), "read_committed") == kept
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed",
        auto_offset_reset="none", consumer_timeout_ms=20_000,
    )  # fmt: skip
    place = kafka.TopicPartition("t", 0)
    reader.assign([place])
    reader.seek(place, 0)
    assert [message.value for message, _ in zip(reader, kept)] == kept
    reader.close()

    lost = next(each for each in IDS if each != leader)
    nodes[lost].stop()
    shutil.rmtree(tmp_path / str(lost) / "t-0")
    nodes[lost] = ThreadNode.again(nodes[lost]).start()
    until(lambda: lost in partitions_of(admin)[0].isrs)
    [other] = (each for each in IDS if each not in (leader, lost))
    nodes[other].stop()
    until(lambda: other not in partitions_of(admin)[0].isrs)
    alter(admin, min_insync_replicas="1")
    nodes[leader].stop()
    bootstrap = nodes[lost].node.bootstrap_servers  # on another port than before
    until(lambda: replica_of(nodes[lost]).is_leader)
    assert consumed(bootstrap, len(kept), "read_committed") == kept


def filled(nodes, tmp_path):
    """A topic of which all that can be copied is, and little is left on the disks; what it has."""
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    values = [b"%d-%d-" % (turn, each) * 60 for turn in range(6) for each in range(30)]
    for at in range(0, len(values), 30):
        produce(bootstrap, values[at : at + 30])
    leader = partitions_of(admin)[0].leader
    until(lambda: all_is_copied(tmp_path, leader, nodes[leader]))
    alter(admin, local_retention_bytes="1")
    until(lambda: all(replica_of(each).log.local_start_offset > 100 for each in nodes.values()))
    return admin, bootstrap, values


def test_offsets_are_told_in_each_version_and_records_deleted_in_each_part(nodes, tmp_path):
    admin, bootstrap, values = filled(nodes, tmp_path)
    leader = partitions_of(admin)[0].leader
    log = replica_of(nodes[leader]).log
    local_start, end = log.local_start_offset, log.end_offset
    specials = {-1: (1, end), -2: (1, 0), EARLIEST_LOCAL: (8, local_start)}
    specials[LATEST_TIERED] = 9, max(each.end_offset for each in copied(nodes[leader]).values()) - 1
    for version in range(1, 11):
        for timestamp, (since, offset) in specials.items():
            told = (ErrorCode.NONE, offset) if version >= since else (35, -1)
            assert ask(nodes[leader], timestamp, version) == told, (timestamp, version)

    for offset in (1, 70, local_start - 1, local_start, end - 1, end):
        admin.delete_records([TopicPartition("t", 0, offset)])[TopicPartition("t", 0)].result(20)
        until(
            lambda o=offset: all(replica_of(each).log.start_offset == o for each in nodes.values())
        )
        assert consumed(bootstrap, end - offset, first=offset) == values[offset:]
        assert ask(nodes[leader], -2) == (0, offset)
        until(
            lambda o=offset: all(each.end_offset > o for each in facts_of(nodes[leader]).segments)
        )
        held = {each.segment_id.hex() for each in facts_of(nodes[leader]).segments}
        until(lambda h=held: {each.parent.name for each in objects(tmp_path)} <= h)
    assert not objects(tmp_path)


def test_a_topic_is_deleted_while_it_is_copied(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    slow = ConfigEntry(
        "remote.log.manager.copy.max.bytes.per.second", "5000",
        incremental_operation=AlterConfigOpType.SET,
    )  # fmt: skip
    brokers = [
        ConfigResource(ConfigResource.Type.BROKER, str(each), incremental_configs=[slow])
        for each in IDS
    ]
    for each in brokers:
        admin.incremental_alter_configs([each])[each].result(20)
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    values = [b"%d-%d-" % (turn, each) * 60 for turn in range(6) for each in range(30)]
    for at in range(0, len(values), 30):
        produce(bootstrap, values[at : at + 30])
    leader = partitions_of(admin)[0].leader
    until(lambda: len(states_of(nodes[leader])) == 2)
    remote = nodes[leader].node.stores.stores.remote
    admin.delete_topics(["t"])["t"].result(20)
    until(lambda: not objects(tmp_path), 40)
    call = asyncio.run_coroutine_threadsafe
    until(lambda: not call(remote.orphans(100), nodes[leader]._loop).result(20))
    assert not objects(tmp_path)


def test_a_remote_log_is_switched_off_and_on_again(nodes, tmp_path):
    admin, bootstrap, values = filled(nodes, tmp_path)
    for change in ({"remote_storage_enable": "false"}, {"remote_storage_enable": None}):
        with pytest.raises(KafkaException, match="without deleting remote data"):
            alter(admin, **change)
    assert sorted(consumed(bootstrap, len(values))) == sorted(values)
    leader = partitions_of(admin)[0].leader
    start = replica_of(nodes[leader]).log.local_start_offset

    alter(admin, remote_storage_enable="false", remote_log_delete_on_disable="true")
    until(lambda: offsets(admin, OffsetSpec.earliest()) == start)
    until(lambda: not list((tmp_path / "objects").rglob("*.log")))
    until(lambda: not facts_of(nodes[leader]).segments)
    assert ask(nodes[leader], LATEST_TIERED) == (0, -1)
    starts = {replica_of(each).log.start_offset for each in nodes.values()}
    assert starts == {start}
    count = replica_of(nodes[leader]).log.end_offset - start
    rest = consumed(bootstrap, count, first=start)
    nodes[leader].stop()
    nodes[leader] = ThreadNode.again(nodes[leader]).start()
    until(lambda: leader in partitions_of(admin)[0].isrs)
    assert replica_of(nodes[leader]).log.start_offset == start

    bootstrap = bootstrap_of(nodes)
    more = [b"more-%d-%d-" % (turn, each) * 40 for turn in range(6) for each in range(30)]
    alter(admin, remote_storage_enable="true")
    for at in range(0, len(more), 30):
        produce(bootstrap, more[at : at + 30])
    leader = partitions_of(admin)[0].leader
    until(lambda: replica_of(nodes[leader]).log.local_start_offset > len(values))
    assert min(copied(nodes[leader])) == start
    count = replica_of(nodes[leader]).log.end_offset - start
    assert sorted(consumed(bootstrap, count, first=start)) == sorted(rest + more)


def test_a_node_without_a_remote_store_does_not_start_and_changes_no_log(nodes, tmp_path):
    admin, _, values = filled(nodes, tmp_path)
    other = next(each for each in IDS if each != partitions_of(admin)[0].leader)
    nodes[other].stop()
    off = ThreadNode.again(nodes[other])
    texts = {**off.config.broker.static, "remote.log.storage.system.enable": "false"}
    off.config = msgspec.structs.replace(off.config, broker=BrokerConfig(texts, {}, {}))
    with pytest.raises(StorageFault, match=r"true for topic t, and remote\.log\.storage\.system"):
        off.start()
    nodes[other] = ThreadNode.again(nodes[other]).start()
    until(lambda: other in partitions_of(admin)[0].isrs)
    assert replica_of(nodes[other]).log.start_offset == 0
    assert sorted(consumed(bootstrap_of(nodes), len(values))) == sorted(values)
