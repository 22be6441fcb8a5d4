"""Committing, reading back, deleting and expiring offsets (R15)."""

from __future__ import annotations

from struct import pack

import pytest
from tests.core.api.in_memory_node import Denying
from tests.core.coordination.groups.group_world import GroupWorld, subscription

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.offset_records import offset_record
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC, offsets_topic
from anabranch.core.coordination.internal_topics import java_hash
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataDelta
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.batch import walk
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.list_groups import ListGroupsRequest
from anabranch.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from anabranch.core.wire.offsets_records import OffsetCommitValue, encode_value
from anabranch.core.wire.records import Record, build_batch, decode_records

DAY_MS = 86_400_000
NONE = ErrorCode.NONE


def ask_to_delete_groups(world, *names):
    return world.ask(DeleteGroupsRequest(groups_names=list(names)), 2)


def delete_groups(world, *names):
    return [each.error_code for each in ask_to_delete_groups(world, *names).results]


def ask_to_delete_offsets(world, topic, *indexes):
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return world.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)


def delete_offsets(world, topic, *indexes):
    response = ask_to_delete_offsets(world, topic, *indexes)
    if response.error_code:
        return response.error_code
    return [each.error_code for each in response.topics[0].partitions]


def describe(world, group_id, version=6):
    return world.ask(DescribeGroupsRequest(groups=[group_id]), version).groups[0]


# Committing.


def test_anybody_may_commit_for_a_name_without_members(world):
    assert world.commit_codes({0: 7, 1: 8}) == [NONE, NONE]
    assert world.fetch() == {0: 7, 1: 8, 2: -1}
    assert world.fetch(topic=None) == {0: 7, 1: 8}
    assert world.fetch("other") == {0: -1, 1: -1, 2: -1}


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_commits(world, version):
    assert world.commit_codes({0: 7}, version=version) == [NONE]
    assert world.fetch()[0] == 7


def test_a_member_commits_in_its_generation(world):
    member, generation = world.one_member()
    mine = {"generation_id": generation, "member_id": member}
    assert world.commit_codes({0: 7}, **mine) == [NONE]
    for how, code in [
        ({**mine, "generation_id": 99}, ErrorCode.ILLEGAL_GENERATION),
        ({**mine, "member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({**mine, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert world.commit_codes({0: 9}, **how) == [code]
    assert world.fetch()[0] == 7


def test_a_commit_keeps_its_member_alive(world):
    member, generation = world.one_member()
    for _ in range(3):
        world.advance(9_000)
        world.commit({0: 7}, generation_id=generation, member_id=member)
    assert world.state() == "Stable"


def test_nobody_commits_between_join_and_sync(world):
    joined = world.enter()
    mine = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    assert world.commit_codes({0: 7}, **mine) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_generation_needs_a_group(world):
    assert world.commit_codes({0: 7}, generation_id=3, member_id="m") == [
        ErrorCode.GROUP_ID_NOT_FOUND
    ]
    assert world.groups.groups == {}


def test_each_partition_is_judged_by_itself(world):
    world = GroupWorld(offset_metadata_max_bytes="4")
    assert world.commit_codes({0: 7, 99: 1}) == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit_codes({0: 8}, metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit_codes({0: 8}, topic="unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.fetch()[0] == 7


def test_what_is_refused_creates_no_group(world):
    world.commit({0: 8}, topic="unknown")
    assert world.groups.groups == {}
    assert world.listed() == []


def test_metadata_and_epoch_come_back(world):
    world.commit({0: 7}, metadata="note")
    message = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    for version in range(1, 8):
        first, second = world.ask(message, version).topics[0].partitions
        assert (first.committed_offset, first.metadata) == (7, "note")
        assert (second.committed_offset, second.metadata) == (-1, "")


def test_a_reader_can_read_that_a_group_with_the_longest_name_is_missing(world):
    answer = world.ask(DescribeGroupsRequest(groups=["g" * 32_767]), 6)
    again = decode(DescribeGroupsResponse, memoryview(encode_bytes(answer, 6)), 6)
    assert again.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_is_asked_for_many_times_is_told_once(world):
    """A few bytes of a request may not each bring all offsets of a group, or a long note."""
    world.commit({0: 7, 1: 8}, metadata="note")
    everything = OffsetFetchRequestGroup(group_id="g", topics=None)
    one = OffsetFetchRequestTopics(name="t", partition_indexes=[1, 0, 1] * 40)
    other = OffsetFetchRequestTopics(name="t", partition_indexes=[2, 1])
    named = OffsetFetchRequestGroup(group_id="g", topics=[one, one, other])

    def told(*groups):
        answer = world.ask(OffsetFetchRequest(groups=list(groups)), 9)
        return [
            (group.group_id, topic.name, [each.partition_index for each in topic.partitions])
            for group in answer.groups
            for topic in group.topics
        ]

    assert told(everything, everything) == [("g", "t", [0, 1])]
    assert told(named, everything, named) == [("g", "t", [0, 1])]
    nobody = OffsetFetchRequestGroup(group_id="h", topics=[one])
    assert told(named, nobody, named) == [("g", "t", [1, 0, 2]), ("h", "t", [1, 0])]
    old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 0] * 30) for _ in range(2)]
    answer = world.ask(OffsetFetchRequest(group_id="g", topics=old), 7)
    assert [len(topic.partitions) for topic in answer.topics] == [1]


def test_a_commit_of_many_partitions_is_cut_into_batches(world):
    world.node.topic("wide", 2_500)
    assert set(world.commit_codes(dict.fromkeys(range(2_500), 1), topic="wide")) == {NONE}
    world.restart()
    assert len(world.fetch(topic="wide", indexes=range(2_500))) == 2_500


# Replicas.


def replicated():
    world = GroupWorld()
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, replicas=(1, 2), isr=(1, 2))
    return world


def test_a_commit_counts_when_the_replicas_have_it():
    world = replicated()
    box = world.commit({0: 7})
    read = world.ask_fetch()
    assert box == read == [], "nobody reads what may still be lost"
    world.commit_to_replicas()
    assert box[0].topics[0].partitions[0].error_code == NONE
    assert world.fetch()[0] == 7


def offset_fetch(world, version):
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        return world.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    message = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    return world.ask(message, version)


@pytest.mark.parametrize("version", range(1, 10))
def test_a_reader_is_told_wherever_it_looks_that_its_offsets_are_not_known(version):
    """One that looks at partitions alone must not take an error for a group without offsets."""
    world = committed_by_all({0: 7})
    assert offset_fetch(world, version) == []
    ((wait, _),) = world.waits
    answer = wait.poll(wait.deadline_ms, True)
    code = ErrorCode.NOT_COORDINATOR
    if version >= 8:
        assert answer.groups[0].error_code == code
        return
    assert answer.error_code == (code if version >= 2 else NONE)
    told = [
        (topic.name, each.partition_index, each.error_code, each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
    ]
    assert told == [("t", 0, code, -1)]


@pytest.mark.parametrize("version", [7, 9])
def test_a_new_coordinator_tells_no_offset_that_may_still_be_lost(version):
    """What it found above the high watermark that it knows may have been acknowledged, or not: it
    is told when the other replicas have it."""
    world = committed_by_all({0: 7})
    world.commit({0: 9})
    world.restart()
    box = offset_fetch(world, version)
    assert box == []
    world.commit_to_replicas()
    told = box[0] if version < 8 else box[0].groups[0]
    assert told.error_code == NONE
    assert told.topics[0].partitions[0].committed_offset == 9


def test_alone_in_sync_a_new_coordinator_waits_until_what_it_read_is_flushed():
    """With flush.messages=1 a power cut may still take it."""
    world = GroupWorld(1)
    replica = world.node.replica(OFFSETS_TOPIC)
    replica.flushed_counts = True
    world.commit({0: 7})
    world.restart()
    box = world.ask_fetch()
    assert box == [] and replica.high_watermark == 0
    for _ in range(2):
        world.node.sync(OFFSETS_TOPIC)
        world.broker.changed[replica.topic_partition] = None
        world.wake()
    assert box[0].groups[0].topics[0].partitions[0].committed_offset == 7


def test_a_commit_that_is_not_replicated_in_time_says_so():
    world = replicated()
    box = world.commit({0: 7})
    ((wait, _),) = world.waits
    late = wait.poll(wait.deadline_ms, True)
    assert late.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert box == []
    world.commit_to_replicas()
    assert world.fetch()[0] == 7


def committed_by_all(offsets):
    world = replicated()
    world.commit(offsets)
    world.commit_to_replicas()
    return world


def test_a_deletion_is_answered_when_the_replicas_have_it():
    world = committed_by_all({0: 7, 1: 8})
    one = ask_to_delete_offsets(world, "t", 0)
    whole = ask_to_delete_groups(world, "g", "unknown")
    read = world.ask_fetch()
    assert one == whole == read == [], "nobody reads what may still be undone"
    world.commit_to_replicas()
    assert world.fetch() == {0: -1, 1: -1, 2: -1}
    assert [each.error_code for each in one[0].topics[0].partitions] == [NONE]
    assert [each.error_code for each in whole[0].results] == [NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert world.group() is None and world.waits == []
    world.restart()
    assert world.group() is None


def test_a_deletion_is_refused_when_the_coordinator_moves():
    """Its successor may not have it: the group would be there again."""
    world = committed_by_all({0: 7})
    one = ask_to_delete_offsets(world, "t", 0)
    whole = ask_to_delete_groups(world, "g")
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, leader=2, leader_epoch=1)
    world.wake()
    assert one[0].error_code == ErrorCode.NOT_COORDINATOR
    assert [each.error_code for each in whole[0].results] == [ErrorCode.NOT_COORDINATOR]


def test_a_deletion_that_is_not_replicated_in_time_says_so():
    world = committed_by_all({0: 7})
    ask_to_delete_offsets(world, "t", 0)
    ask_to_delete_groups(world, "g")
    one, whole = (wait.poll(wait.deadline_ms, True) for wait, _ in world.waits)
    assert one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert whole.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_is_committed_behind_a_deletion_counts():
    """The log has it behind the tombstones, so it must be read back before a restart, too."""
    world = committed_by_all({0: 7})
    ask_to_delete_groups(world, "g")
    box = world.commit({1: 9})
    world.commit_to_replicas()
    assert box[0].topics[0].partitions[0].error_code == NONE
    assert world.fetch() == {0: -1, 1: 9, 2: -1}
    world.restart()
    assert world.fetch() == {0: -1, 1: 9, 2: -1}


def test_what_was_on_its_way_before_a_deletion_is_deleted_too():
    """As in Kafka: the log has the deletion behind it."""
    world = committed_by_all({0: 7})
    world.commit({1: 9})
    ask_to_delete_groups(world, "g")
    world.commit_to_replicas()
    assert world.fetch() == {0: -1, 1: -1, 2: -1}
    world.restart()
    assert world.fetch() == {0: -1, 1: -1, 2: -1}


def test_a_member_that_joins_during_a_deletion_finds_no_offsets():
    world = committed_by_all({0: 7})
    ask_to_delete_groups(world, "g")
    world.enter()
    world.commit_to_replicas()
    assert world.fetch()[0] == -1
    world.restart()
    assert world.fetch()[0] == -1


def test_assignments_are_handed_out_when_the_replicas_have_them():
    world = replicated()
    joined = world.enter()
    box = world.sync(joined.member_id, 1, {joined.member_id: b"all"})
    assert box == [] and world.state() == "CompletingRebalance"
    world.commit_to_replicas()
    assert box[0].assignment == b"all" and world.state() == "Stable"


def test_too_few_replicas_refuse_commits_and_assignments():
    world = replicated()
    joined = world.enter()
    for index in range(3):
        world.node.change(OFFSETS_TOPIC, index, isr=(1,))
        replica = world.node.replica(OFFSETS_TOPIC, index)
        replica.min_insync_replicas = 2
    refused = world.sync(joined.member_id, 1, {joined.member_id: b"all"})
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "PreparingRebalance"
    assert world.commit_codes({0: 7}, group_id="other") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert "other" not in world.groups.groups


# What is in the log.


def test_the_log_holds_kafkas_records(world):
    world.commit({0: 7}, metadata="note")
    world.commit({0: 8}, retention_ms=1_000, version=4)
    replica = world.node.replica(OFFSETS_TOPIC, java_hash("g") % 3)
    found = replica.log.read(0, max_bytes=1 << 20, upto=9, at_least_one=True)
    (first,), (second,) = [decode_records(found, position) for position, _ in walk(found)]
    assert first.key == b"\0\1\0\1g\0\1t\0\0\0\0"
    assert first.value[:2] == b"\0\4" and b"note" in first.value
    assert first.value.endswith(b"\1\0\x10t" + b"\1" * 15), "one tagged field: the topic's id"
    assert second.value[:2] == b"\0\4"
    fields = b"\2\0\x10t" + b"\1" * 15 + b"\x90\x4e\x08"
    assert second.value[:-8].endswith(fields), "two: the topic's id, and ours for the expiry"


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 0), ("g", 103), ("group", 98629247), ("Käse", 2457099), ("polygenelubricants", 0)],
)
def test_the_hash_is_javas(name, number):
    assert java_hash(name) == number


def test_the_hash_of_what_is_beyond_the_basic_plane_counts_surrogates():
    assert java_hash("\U0001f600") == (31 * 0xD83D + 0xDE00)


# Deleting.


def test_a_group_without_members_is_deleted_with_its_offsets(world):
    world.commit({0: 7})
    assert delete_groups(world, "g", "unknown") == [NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert world.fetch()[0] == -1
    world.restart()
    assert world.groups.groups == {}


def test_a_group_with_members_is_not_deleted(world):
    world.one_member()
    assert delete_groups(world, "g") == [ErrorCode.NON_EMPTY_GROUP]


def test_offsets_of_a_topic_that_is_read_are_not_deleted(world):
    member, generation = world.one_member()
    world.node.topic("other", 2)
    mine = {"generation_id": generation, "member_id": member}
    world.commit({0: 7}, **mine)
    world.commit({0: 7}, topic="other", **mine)
    assert delete_offsets(world, "t", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert delete_offsets(world, "other", 0, 1, 9) == [
        NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert world.fetch(topic="other", indexes=[0]) == {0: -1}
    world.leave((member, None))
    assert delete_offsets(world, "t", 0) == [NONE]


def test_offsets_are_not_deleted_where_topics_cannot_be_told(world):
    world.one_member(protocols={"range": b"\0"})
    assert delete_offsets(world, "t", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_deleting_offsets_needs_a_group(world):
    assert delete_offsets(world, "t", 0) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_go(world):
    world.commit({0: 7})
    offsets.topics_deleted(world.groups, {"t"}, world.node.now_ms)
    assert world.fetch()[0] == -1
    world.restart()
    assert world.fetch()[0] == -1


def test_a_coordinator_hears_what_the_metadata_deletes(world):
    world.node.topic("other", 1)
    world.commit({0: 7})
    world.commit({0: 9}, topic="other")
    before = world.broker.image
    world.node.remove("t")
    delta = MetadataDelta(deleted_topics=(before.topic("t"),))
    world.broker.take_image(delta, delta, world.node.now_ms)
    assert world.fetch()[0] == -1
    assert world.fetch(topic="other", indexes=[0]) == {0: 9}


def test_offsets_of_a_topic_that_is_deleted_while_its_groups_are_read_go(world):
    """Also when a topic of that name is there again: it would be read from there."""
    world.node.topic("other", 1)
    world.commit({0: 7})
    world.commit({0: 9}, topic="other")
    world.groups.__init__(world.broker)
    world.groups.follow_leadership(world.node.now_ms)
    world.node.remove("t")
    world.node.topic("t", 8, incarnation=2)
    offsets.topics_deleted(world.groups, {"t"}, world.node.now_ms)
    world.follow()
    assert world.fetch()[0] == -1
    world.commit({0: 1})
    world.restart()
    assert world.fetch()[0] == 1
    assert world.fetch(topic="other", indexes=[0]) == {0: 9}


def test_offsets_of_a_topic_that_was_deleted_while_nobody_led_go(world):
    world.node.topic("other", 1)
    world.commit({0: 7})
    world.commit({0: 9}, topic="other")
    world.node.remove("t")
    world.restart()
    world.node.topic("t", 8)
    world.restart()
    assert world.fetch()[0] == -1
    assert world.fetch(topic="other", indexes=[0]) == {0: 9}


# Expiring.


def expire(world):
    offsets.expire(world.groups, world.node.now_ms)


def test_offsets_of_a_mere_name_expire_after_each_commit(world):
    world.commit({0: 7})
    world.advance(6 * DAY_MS)
    world.commit({1: 7})
    world.advance(DAY_MS)
    expire(world)
    assert world.fetch() == {0: -1, 1: 7, 2: -1}
    world.advance(6 * DAY_MS)
    expire(world)
    assert world.groups.groups == {}


def test_a_group_keeps_its_offsets_until_it_was_empty_for_long(world):
    member, generation = world.one_member(session_ms=1_800_000)
    world.commit({0: 7}, generation_id=generation, member_id=member)
    for _ in range(8 * 48):
        world.advance(1_800_000 - 1)
        world.heartbeat(member, generation)
    expire(world)
    assert world.fetch()[0] == 7
    world.leave((member, None))
    world.advance(7 * DAY_MS - 1)
    expire(world)
    assert world.fetch()[0] == 7
    world.advance(1)
    expire(world)
    assert world.groups.groups == {}
    world.restart()
    assert world.groups.groups == {}


def test_what_is_committed_to_an_empty_group_is_kept_as_long(world):
    """By an administrator, or by a client that assigns partitions itself under the group's name."""
    member, generation = world.one_member()
    world.commit({0: 7, 1: 8}, generation_id=generation, member_id=member)
    world.leave((member, None))
    world.advance(7 * DAY_MS - 1)
    world.commit({0: 9})
    world.advance(1)
    world.restart()
    expire(world)
    assert world.fetch() == {0: 9, 1: -1, 2: -1}
    world.advance(7 * DAY_MS)
    expire(world)
    assert world.groups.groups == {}


@pytest.mark.parametrize("type_id", [3, 17])
def test_a_group_of_kafkas_newer_protocols_is_empty_from_when_it_is_read(world, type_id):
    """Its members cannot come here: its old offsets stay while they learn the classic protocol."""
    key = pack(">hh", type_id, 1) + b"g"
    world.commit({0: 7})
    write(world, Record(0, world.node.now_ms, key, pack(">hi", 0, 1)))
    world.advance(8 * DAY_MS)
    world.restart()
    expire(world)
    assert (world.fetch()[0], world.state()) == (7, "Empty")
    world.advance(7 * DAY_MS)
    expire(world)
    world.restart()
    assert world.groups.groups == {}


def test_a_group_of_a_newer_protocol_that_kafka_deleted_is_a_mere_name(world):
    key = pack(">hh", 3, 1) + b"g"
    write(world, Record(0, world.node.now_ms, key, pack(">hi", 0, 1)))
    write(world, Record(0, world.node.now_ms, key, None))
    world.commit({0: 7})
    world.restart()
    world.advance(7 * DAY_MS)
    expire(world)
    assert world.groups.groups == {}


def write(world, record):
    """As a Kafka that led before."""
    replica = world.groups.shard_of("g", world.node.now_ms).replica
    batch = build_batch([record])
    replica.append(batch, required_acks=-1, now_ms=world.node.now_ms, client=False)


def test_topics_that_are_no_longer_read_expire_while_the_group_lives(world):
    member, generation = world.one_member(session_ms=1_800_000)
    world.node.topic("other", 1)
    mine = {"generation_id": generation, "member_id": member}
    world.commit({0: 7}, **mine)
    world.commit({0: 7}, topic="other", **mine)
    for _ in range(8 * 48):
        world.advance(1_800_000 - 1)
        world.heartbeat(member, generation)
    expire(world)
    assert world.fetch(topic=None) == {0: 7}
    assert list(world.group().offsets) == ["t"]


def test_a_retention_that_the_client_sets_counts_alone(world):
    world.commit({0: 7}, retention_ms=1_000, version=3)
    world.advance(1_000)
    expire(world)
    assert world.groups.groups == {}


# Telling.


def test_a_group_is_described(world):
    member, _ = world.one_member(client_id="me")
    found = describe(world, "g")
    assert (found.group_state, found.protocol_type, found.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    told = found.members[0]
    assert (told.member_id, told.client_id, told.client_host) == (member, "me", "/127.0.0.1")
    assert (told.member_metadata, told.member_assignment) == (subscription("t"), b"all")


def test_a_group_that_is_not_there_is_dead(world):
    assert describe(world, "g").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old = describe(world, "g", version=5)
    assert (old.error_code, old.group_state) == (NONE, "Dead")


def test_groups_are_listed_by_state_and_type(world):
    world.one_member()
    world.commit({0: 7}, group_id="name")
    assert world.listed() == ["g", "name"]
    assert world.listed("sTaBle") == ["g"]
    assert world.listed("Unheard") == []
    kinds = [
        [group.group_id for group in world.ask(ListGroupsRequest(types_filter=[kind]), 5).groups]
        for kind in ("Classic", "consumer")
    ]
    assert kinds == [["g", "name"], []]


def test_the_coordinator_is_the_leader_of_the_groups_partition(world):
    many = world.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 6).coordinators
    assert [(each.key, each.node_id, each.port, each.error_code) for each in many] == [
        ("g", 1, 9093, 0), ("h", 1, 9093, 0),
    ]  # fmt: skip
    one = world.ask(FindCoordinatorRequest(key="g"), 3)
    assert (one.node_id, one.port, one.error_code) == (1, 9093, 0)


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.UNSUPPORTED_VERSION), (9, ErrorCode.INVALID_REQUEST)],
)
def test_other_coordinators_are_refused_with_a_sentence(world, key_type, code):
    found = world.ask(FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type), 4)
    assert found.coordinators[0].error_code == code
    assert found.coordinators[0].error_message.endswith(".")


def test_the_first_question_creates_the_topic_and_waits_for_it():
    world = GroupWorld()
    world.node.remove(OFFSETS_TOPIC)
    box = world.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    (wish,) = world.wishes
    topic = wish.message.topics[0]
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 50, 1)
    assert ("cleanup.policy", "compact") in [(each.name, each.value) for each in topic.configs]
    world.ask(FindCoordinatorRequest(coordinator_keys=["h"]), 4)
    assert len(world.wishes) == 1
    world.node.topic(OFFSETS_TOPIC, 50)
    world.broker.changed["metadata"] = None
    world.wake()
    assert box[0].coordinators[0].error_code == NONE


def test_a_replication_factor_that_is_set_is_not_lowered(world):
    image = world.broker.image
    assert offsets_topic(image, BrokerConfig.of({})).replication_factor == 1
    chosen = BrokerConfig.of({"offsets.topic.replication.factor": "3"})
    assert offsets_topic(image, chosen).replication_factor == 3


# Authorization.


def test_groups_are_guarded_where_kafka_guards_them():
    world = GroupWorld()
    world.one_member()
    world.commit({0: 7}, group_id="name")
    world.broker.authorizer = Denying(
        *((operation, ResourceType.GROUP, None) for operation in Operation)
    )
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.join().error_code == refused
    assert world.sync("m", 1).error_code == refused
    assert world.heartbeat("m", 1) == refused
    assert world.leave(("m", None)).error_code == refused
    assert world.commit_codes({0: 7}) == [refused]
    assert describe(world, "g").error_code == refused
    assert delete_groups(world, "g") == [refused]
    assert delete_offsets(world, "t", 0) == refused
    found = world.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert found[0].error_code == refused


def test_topics_are_guarded_within_an_allowed_group():
    world = GroupWorld()
    world.commit({0: 7})
    world.broker.authorizer = Denying(
        (Operation.READ, ResourceType.TOPIC, "t"), (Operation.DESCRIBE, ResourceType.TOPIC, "t")
    )
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.commit_codes({0: 8}) == [refused]
    assert delete_offsets(world, "t", 0) == [refused]
    assert world.fetch(topic=None) == {}
    assert world.fetch() == {0: -1, 1: -1, 2: -1}


@pytest.mark.parametrize("offset", [0, 7, 2**62])
@pytest.mark.parametrize("epoch", [-1, 3])
@pytest.mark.parametrize("topic_id", [ZERO_TOPIC_ID, TopicId(b"t" * 16)])
def test_the_short_way_to_write_an_offset_is_the_schemas(offset, epoch, topic_id):
    committed = CommittedOffset(offset, epoch, "", 1_700_000_000_000, -1, topic_id)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch,
        commit_timestamp=1_700_000_000_000,
        expire_timestamp=-1,
        topic_id=topic_id,
    )
    assert offset_record("g", "t", 1, committed, 5).value == encode_value(value, 4)


def test_a_new_coordinator_reads_beyond_the_high_watermark_that_it_knows():
    """What was acknowledged may lie above what a new leader was told to be committed."""
    world = GroupWorld(1)
    world.commit({0: 5})
    replica = world.broker.partitions.get("__consumer_offsets", 0)
    replica.high_watermark = 0
    world.restart()
    assert world.group().offsets["t"][0].offset == 5
