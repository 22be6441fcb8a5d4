"""R15: groups and their offsets through three admin clients."""

from __future__ import annotations

import asyncio

import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    TopicPartition,
)
from kafka.admin import KafkaAdminClient
from tests.clients.adapters import SECONDS, Sent
from tests.clients.member_clients import ConfluentMember
from tests.clients.members import until


@pytest.fixture
def python_admin(node):
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def used(join, new_topic, produce):
    """A topic of two partitions, read and committed by the member that is returned with it."""
    topic = new_topic(2)
    for number in range(2):
        produce(topic, [Sent(None, b"%d" % each) for each in range(10)], partition=number)
    member = join(ConfluentMember, topic)
    member.values(20)
    member.commit({(topic, 0): (4, ""), (topic, 1): (5, "")})
    return topic, member


def result(futures):
    (future,) = futures.values()
    return future.result(SECONDS)


def code_of(futures):
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        result(futures)
    return refused.value.args[0].code()


def offsets_of(admin, group, *partitions):
    asked = [TopicPartition(*each) for each in partitions] or None
    found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)]))
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions}


def groups_of(admin, **filters):
    listed = admin.list_consumer_groups(**filters).result(SECONDS)
    assert listed.errors == []
    return {each.group_id: (each.state, each.type) for each in listed.valid}


def test_listing_by_state_and_type(admin, node, group, used):
    _, member = used
    stable = (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert groups_of(admin)[group] == stable
    assert groups_of(admin, states={ConsumerGroupState.STABLE})[group] == stable
    assert group not in groups_of(admin, states={ConsumerGroupState.EMPTY})
    assert groups_of(admin, types={ConsumerGroupType.CLASSIC})[group] == stable
    assert group not in groups_of(admin, types={ConsumerGroupType.CONSUMER})
    member.leave()
    assert groups_of(admin, states={ConsumerGroupState.EMPTY})[group][0].name == "EMPTY"


def test_describing(admin, group, used):
    topic, member = used
    found = result(admin.describe_consumer_groups([group]))
    (described,) = found.members
    assert (found.state, found.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    assert (found.partition_assignor, found.is_simple_consumer_group) == ("range", False)
    assert described.client_id == member.client_id
    assert described.host == "/127.0.0.1"
    assert {(each.topic, each.partition) for each in described.assignment.topic_partitions} == {
        (topic, 0), (topic, 1)
    }  # fmt: skip


def test_describing_one_that_does_not_exist(admin, python_admin, used):
    """The libraries speak versions in which it is Dead; GROUP_ID_NOT_FOUND came with version 6."""
    assert result(admin.describe_consumer_groups(["nobody"])).state == ConsumerGroupState.DEAD
    assert python_admin.describe_groups(["nobody"])["nobody"]["group_state"] == "Dead"


def test_offsets_are_listed(admin, group, used):
    topic, _ = used
    assert offsets_of(admin, group) == {(topic, 0): 4, (topic, 1): 5}
    assert offsets_of(admin, group, (topic, 1)) == {(topic, 1): 5}
    assert offsets_of(admin, group, (topic, 7)) == {(topic, 7): confluent_kafka.OFFSET_INVALID}


def test_offsets_are_altered_when_nobody_is_there(admin, group, used, join):
    topic, member = used
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 8)])
    refused = result_or_offsets(admin.alter_consumer_group_offsets([change]))
    assert refused == KafkaError.UNKNOWN_MEMBER_ID
    member.leave()
    assert result_or_offsets(admin.alter_consumer_group_offsets([change])) == [8]
    assert offsets_of(admin, group) == {(topic, 0): 8, (topic, 1): 5}
    again = join(ConfluentMember, topic)
    assert sorted(again.values(7)) == sorted([b"8", b"9", b"5", b"6", b"7", b"8", b"9"])


def result_or_offsets(futures):
    """The offsets that were taken, or the number of the refusal, which may be the partition's."""
    try:
        taken = result(futures).topic_partitions
    except confluent_kafka.KafkaException as refused:
        return refused.args[0].code()
    faults = [each.error.code() for each in taken if each.error]
    return faults[0] if faults else [each.offset for each in taken]


def test_deleting_a_group(admin, group, used, python_admin):
    _, member = used
    assert code_of(admin.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    member.leave()
    assert result(admin.delete_consumer_groups([group])) is None
    assert group not in groups_of(admin)
    assert code_of(admin.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND
    assert python_admin.describe_groups([group])[group]["group_state"] == "Dead"


def test_deleting_offsets(admin, group, used, python_admin):
    topic, member = used
    at = kafka.TopicPartition(topic, 0)
    subscribed = kafka.errors.GroupSubscribedToTopicError
    assert python_admin.delete_group_offsets(group, [at]) == {at: subscribed}
    member.leave()
    assert python_admin.delete_group_offsets(group, [at]) == {at: kafka.errors.NoError}
    assert offsets_of(admin, group) == {(topic, 1): 5}


def test_kafka_pythons_view(group, used, python_admin):
    topic, member = used
    described = python_admin.describe_groups([group])[group]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    assert [each["client_id"] for each in described["members"]] == [member.client_id]
    found = python_admin.list_group_offsets({group: None})[group]
    assert {each.partition: value.offset for each, value in found.items()} == {0: 4, 1: 5}
    member.leave()
    changed = {kafka.TopicPartition(topic, 1): kafka.OffsetAndMetadata(9, "nine", -1)}
    python_admin.alter_group_offsets(group, changed)
    found = python_admin.list_group_offsets({group: None})[group]
    assert {each.partition: value.offset for each, value in found.items()} == {0: 4, 1: 9}
    assert found[kafka.TopicPartition(topic, 1)].metadata == "nine"
    assert group in {each["group_id"] for each in python_admin.list_groups()}


def test_aiokafkas_view(node, group, used):
    async def look():
        admin = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await admin.start()
        try:
            return (
                await admin.list_consumer_groups(),
                await admin.describe_consumer_groups([group]),
                await admin.list_consumer_group_offsets(group),
                await admin.find_coordinator(group),
            )
        finally:
            await admin.close()

    listed, described, offsets, coordinator = asyncio.run(look())
    assert (group, "consumer") in [each[:2] for each in listed]
    (answer,) = described
    assert answer.groups[0][:4] == (0, group, "Stable", "consumer")
    assert {each.partition: value.offset for each, value in offsets.items()} == {0: 4, 1: 5}
    assert coordinator == 1


def test_offsets_go_with_their_topic(admin, node, group, used):
    topic, member = used
    member.leave()
    assert offsets_of(admin, group) == {(topic, 0): 4, (topic, 1): 5}
    admin.delete_topics([topic])[topic].result(SECONDS)
    until(lambda: offsets_of(admin, group) == {}, "no offsets")
