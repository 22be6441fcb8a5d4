"""Metadata: who is there, who leads, what is created on the way."""

from itertools import product

import pytest
from immutables import Map
from msgspec.structs import replace
from tests.core.api.in_memory_node import Denying, InMemoryNode, broker_image

from anabranch.core.access.authorize import NOT_ASKED, Operation, ResourceType
from anabranch.core.errors import ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def ask(node, *names, version=12, everything=False, topic_ids=(), **how):
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids]
    return node.send(MetadataRequest(topics=None if everything else topics, **how), version)


@pytest.mark.parametrize("version", range(14))
def test_every_version(node, version):
    topic_id = node.topic(partitions=2)
    response = ask(node, "t", version=version)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "127.0.0.1", 9093)
    ]
    assert response.controller_id == 1
    [topic] = response.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", topic_id)
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 1), (1, 1)]
    assert topic.partitions[0].replica_nodes == [1]


def test_all_topics(node):
    node.topic("b")
    node.topic("a")
    names = [topic.name for topic in ask(node, everything=True).topics]
    assert names == ["a", "b"]
    assert [topic.name for topic in ask(node, version=0).topics] == ["a", "b"]
    assert ask(node, version=1).topics == []


def test_internal_topics_are_marked(node):
    node.topic("__consumer_offsets")
    assert ask(node, everything=True).topics[0].is_internal


def test_by_topic_id(node):
    topic_id = node.topic()
    unknown = bytes([9]) * 16
    known, missing = ask(node, topic_ids=[topic_id, unknown]).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert node.broker.wishes == []


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_not_served_before_version_12(node, version):
    topic_id = node.topic()
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name="t")])
    [topic] = node.send(request, version).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_a_missing_topic_is_created_on_the_way(node):
    [topic] = ask(node, "fresh").topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [wish] = node.broker.wishes
    [creatable] = wish.message.topics
    assert (creatable.name, creatable.num_partitions, creatable.replication_factor) == (
        "fresh",
        1,
        1,
    )
    ask(node, "fresh")
    assert len(node.broker.wishes) == 1
    wish.done()
    ask(node, "fresh")
    assert len(node.broker.wishes) == 2


def test_nothing_is_created_when_the_client_or_the_broker_forbids_it(node):
    ask(node, "fresh", allow_auto_topic_creation=False)
    assert node.broker.wishes == []
    strict = InMemoryNode(config={"auto.create.topics.enable": "false"})
    ask(strict, "fresh")
    assert strict.broker.wishes == []


@pytest.mark.parametrize("name", ["", "a b", ".", "..", "x" * 250])
def test_illegal_names(node, name):
    [topic] = ask(node, name).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.broker.wishes == []


def test_what_may_not_be_described_is_not_told():
    node = InMemoryNode(authorizer=Denying((Operation.DESCRIBE, ResourceType.TOPIC, None)))
    node.topic()
    for name in ("t", "missing"):
        [topic] = ask(node, name).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert topic.topic_id == ZERO_TOPIC_ID
    assert ask(node, everything=True).topics == []
    assert node.broker.wishes == []


def test_creating_needs_create_on_cluster_or_topic():
    denied = Denying(
        (Operation.CREATE, ResourceType.CLUSTER, None), (Operation.CREATE, ResourceType.TOPIC, "x")
    )
    node = InMemoryNode(authorizer=denied)
    refused, created = ask(node, "x", "y").topics
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert created.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [wish.message.topics[0].name for wish in node.broker.wishes] == ["y"]


def test_authorized_operations_when_asked(node):
    node.topic()
    plain = ask(node, "t", version=8)
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    asked = ask(
        node,
        "t",
        version=8,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert asked.topics[0].topic_authorized_operations == 0b110111111000
    assert asked.cluster_authorized_operations == 0b1111110100000


def leaderless(node, image):
    node.broker.image = type(node.broker.image)(
        topics_by_id=node.broker.image.topics_by_id,
        topic_ids_by_name=node.broker.image.topic_ids_by_name,
        brokers=node.broker.image.brokers.set(image.broker_id, image),
    )


def test_a_leader_without_the_listener(node):
    node.topic(replicas=(1, 2), leader=2)
    elsewhere = broker_image(2)
    without = type(elsewhere)(
        broker_id=2,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=type(elsewhere.endpoints)(),
        fenced=False,
    )
    leaderless(node, without)
    [partition] = ask(node, "t", version=6).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    [partition] = ask(node, "t", version=5).topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.offline_replicas == [2]


def test_nobody_leads(node):
    node.topic(replicas=(1, 2), leader=-1)
    [partition] = ask(node, "t").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_fenced_brokers_are_not_named_and_their_replicas_are_offline(node):
    node.topic(replicas=(1, 2))
    leaderless(node, broker_image(2, fenced=True))
    response = ask(node, "t")
    assert [each.node_id for each in response.brokers] == [1]
    assert response.topics[0].partitions[0].offline_replicas == [2]
    [old] = ask(node, "t", version=0).topics[0].partitions
    assert (old.error_code, old.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])


def test_the_last_broker_names_itself_while_it_stops(node):
    """librdkafka forgets brokers that are not named, and with the last one its way back."""
    node.topic()
    leaderless(node, broker_image(1, fenced=True))
    assert [(each.node_id, each.port) for each in ask(node, "t").brokers] == [(1, 9093)]


def test_a_topic_s_partitions_are_made_once_an_image(node):
    node.topic(partitions=3)
    first, second = (ask(node, "t").topics[0].partitions for _ in range(2))
    assert first is second
    node.change("t", leader_epoch=4)
    assert ask(node, "t").topics[0].partitions[0].leader_epoch == 4


FOLDERS = {1: b"a" * 16, 2: b"b" * 16, 3: b"c" * 16}
LIES_IN = {  # where the metadata says that a replica lies -> whether it is there (KIP-858)
    "a folder that works": (lambda broker_id: FOLDERS[broker_id], True),
    "a folder that failed": (lambda _: b"x" * 16, False),
    "no known folder": (lambda _: bytes(16), True),
    "a lost folder": (lambda _: (1).to_bytes(16), False),
    "a migrating folder": (lambda _: (2).to_bytes(16), True),
}


@pytest.mark.parametrize("describes", [False, True])
def test_replicas_in_failed_folders_are_offline(node, describes):
    """Each of three replicas anywhere, in partitions of the same brokers."""
    places = [*product(LIES_IN.values(), repeat=3)]
    node.topic(partitions=len(places), replicas=(1, 2, 3))
    for broker_id, folder in FOLDERS.items():
        leaderless(node, replace(broker_image(broker_id), log_dirs=(folder,)))
    image = node.broker.image
    topic = image.topic("t")
    partitions = {
        index: replace(topic.partitions[index], directories=tuple(map(told, (1, 2, 3), place)))
        for index, place in enumerate(places)
    }
    topic = replace(topic, partitions=Map(partitions))
    node.broker.image = replace(image, topics_by_id=Map({topic.topic_id: topic}))
    if describes:
        named = [TopicRequest(name="t")]
        [answered] = node.send(DescribeTopicPartitionsRequest(topics=named), 0).topics
    else:
        [answered] = ask(node, "t").topics
    assert len(answered.partitions) == len(places)
    for place, partition in zip(places, answered.partitions, strict=True):
        gone = [broker_id for broker_id, (_, is_there) in zip((1, 2, 3), place) if not is_there]
        assert partition.offline_replicas == gone


def told(broker_id, place):
    return place[0](broker_id)


def test_replicas_of_a_broker_that_registered_no_folders_are_not_offline(node):
    node.topic(replicas=(1, 2))
    node.change("t", directories=(b"x" * 16, b"x" * 16))
    leaderless(node, broker_image(2))
    assert ask(node, "t").topics[0].partitions[0].offline_replicas == []
