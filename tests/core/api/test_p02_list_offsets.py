"""ListOffsets: timestamps, specials by version, isolation, epochs."""

import pytest
from tests.core.api.in_memory_node import START_MS, Denying, InMemoryNode, batch

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.errors import ErrorCode
from anabranch.core.log.files import ColdRead
from anabranch.core.outcome import Cold
from anabranch.core.wire.batch import renew_crc
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


def ask(node, timestamp, version=10, *, replica_id=-1, isolation_level=0, index=0, **how):
    part = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **how)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[part])],
    )
    [topic] = node.send(request, version).topics
    return topic.partitions[0]


def answer(found):
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@pytest.fixture
def filled(node):
    node.topic()
    for start in (0, 10, 5):
        records = batch(3, timestamp=START_MS + start)
        node.replica().append(records, required_acks=1, now_ms=node.now_ms)
    return node


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, -1, 9, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, START_MS + 12, 5, 0)),
        (-4, (0, -1, 0, 0)),
        (-5, (0, -1, -1, -1)),
        (0, (0, START_MS, 0, 0)),
        (START_MS + 1, (0, START_MS + 1, 1, 0)),
        (START_MS + 3, (0, START_MS + 10, 3, 0)),
        (START_MS + 13, (0, -1, -1, -1)),
    ],
)
def test_timestamps_and_specials(filled, timestamp, expected):
    assert answer(ask(filled, timestamp)) == expected


@pytest.mark.parametrize("version", range(1, 11))
def test_latest_in_every_version(filled, version):
    assert ask(filled, -1, version).offset == 9


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-99, 11)])
def test_specials_need_their_version(filled, timestamp, since):
    for version in range(1, 11):
        refused = ask(filled, timestamp, version).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert refused == (version < since)


def test_an_empty_partition(node):
    node.topic()
    assert answer(ask(node, -1)) == (0, -1, 0, 0)
    assert answer(ask(node, -3)) == (0, -1, -1, -1)
    assert answer(ask(node, 5)) == (0, -1, -1, -1)


def test_read_committed_stops_at_the_last_stable_offset(filled):
    open_transaction = batch(
        2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    filled.replica().append(open_transaction, required_acks=1, now_ms=START_MS)
    assert ask(filled, -1, isolation_level=1).offset == 9
    assert ask(filled, -1).offset == 11


def test_followers_see_the_log_end():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    node.replica().append(batch(3), required_acks=1, now_ms=START_MS)
    assert ask(node, -1).offset == 0
    assert ask(node, -1, replica_id=2).offset == 3
    assert ask(node, -3).offset == -1


def test_a_new_leader_whose_high_watermark_lags_cannot_say():
    """KIP-207."""
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    node.replica().append(batch(3), required_acks=1, now_ms=START_MS)
    node.change("t", leader_epoch=1)
    assert ask(node, -1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(node, -1, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(node, -2).error_code == 0


def test_partitions_named_twice_are_refused(node):
    node.topic()
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part, part])]
    )
    [topic] = node.send(request, 10).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_REQUEST]


def test_epochs_leaders_and_unknown_partitions(node):
    node.topic(replicas=(1, 2), leader=2)
    node.change("t", leader_epoch=3)
    assert ask(node, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(node, -1, replica_id=-2).error_code == 0
    fenced = ask(node, -1, current_leader_epoch=1)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    newer = ask(node, -1, current_leader_epoch=4)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(node, -1, index=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describe_is_asked():
    node = InMemoryNode(authorizer=Denying((Operation.DESCRIBE, ResourceType.TOPIC, "t")))
    assert ask(node, -1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_cold_reads_go_on_where_they_were(filled, monkeypatch):
    """A lookup that needs the disk is warmed and continued, not failed; nothing is done twice."""
    filled.topic("u")
    filled.replica("u").append(batch(2), required_acks=1, now_ms=filled.now_ms)
    file = filled.replica().log.active.file
    read, colds = type(file).read, []

    def cold_once(self, position, length):
        if self.path == file.path and position not in colds:
            colds.append(position)
            raise ColdRead(self, position, length)
        return read(self, position, length)

    monkeypatch.setattr(type(file), "read", cold_once)
    topics = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=START_MS + 3)])
        for name in ("u", "t")
    ]
    outcome = filled.send(ListOffsetsRequest(topics=topics), 10)
    while isinstance(outcome, Cold):
        outcome = outcome.again(filled.now_ms)
    assert colds
    assert [answer(topic.partitions[0]) for topic in outcome.topics] == [
        (0, -1, -1, -1),
        (0, START_MS + 10, 3, 0),
    ]


def test_many_cold_lookups_share_their_rounds(node, monkeypatch):
    node.topic(partitions=20)
    for index in range(20):
        node.replica(index=index).append(batch(3), required_acks=1, now_ms=node.now_ms)
    file_type, warm = type(node.replica().log.active.file), set()
    read = file_type.read

    def cold_until_warmed(self, position, length):
        if (self.path, position) not in warm:
            raise ColdRead(self, position, length)
        return read(self, position, length)

    monkeypatch.setattr(file_type, "read", cold_until_warmed)

    def rounds_for(indexes):
        warm.clear()
        parts = [ListOffsetsPartition(partition_index=i, timestamp=START_MS + 1) for i in indexes]
        topic = ListOffsetsTopic(name="t", partitions=parts)
        outcome, rounds = node.send(ListOffsetsRequest(topics=[topic]), 10), 0
        while isinstance(outcome, Cold):
            rounds += 1
            warm.update((missing.file.path, missing.position) for missing in outcome.reads)
            outcome = outcome.poll(node.now_ms, False)
        assert [each.offset for each in outcome.topics[0].partitions] == [1] * len(indexes)
        return rounds

    assert rounds_for(range(20)) == rounds_for([0]) > 0


def test_records_that_are_none_fail_their_partition_alone(node):
    """A producer may write anything under a sound checksum; others' lookups must not suffer."""
    node.topic()
    poison = batch(1, timestamp=START_MS)
    poison[61:] = b"\xff" * (len(poison) - 61)
    renew_crc(poison, 0, len(poison))
    node.replica().append(poison, required_acks=1, now_ms=node.now_ms)
    assert ask(node, START_MS).error_code == ErrorCode.CORRUPT_MESSAGE
