"""Names, ids and configurations that are none: nothing comes into being (R15)."""

from __future__ import annotations

import pytest
from bad_kit import batch, code_of

from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_FACTOR = 3, 17, 37, 38
INVALID_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_ID = 39, 40, 42, 100
NOBODYS_ID = b"\x01" * 16
TOPIC = 2

ILLEGAL = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "a way out": "../../etc/passwd",
    "a slash": "a/b",
    "a zero byte": "a\0b",
    "a line break": "a\nb",
    "a space": "a b",
    "letters of another script": "temat-ż",
    "too long": "x" * 250,
    "far too long": "x" * 32_767,
}


def created(client, **fields):
    """The error code of a topic that is asked for."""
    topic = CreatableTopic(**{"num_partitions": 1, "replication_factor": 1, **fields})
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == 0 or answer.topics[0].error_message
    return answer.topics[0].error_code


@pytest.mark.parametrize("name", ILLEGAL.values(), ids=ILLEGAL)
def test_an_illegal_name(node, client, name):
    assert created(client, name=name) == INVALID_TOPIC
    asked = [MetadataRequestTopic(name=name)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    assert client.ask(request, 12).topics[0].error_code == INVALID_TOPIC
    assert code_of(client, name, batch()) == UNKNOWN_TOPIC


def test_names_that_collide_as_metrics(node, client):
    """`.` and `_` are one character in the names of metrics."""
    assert created(client, name="dotted_name") == INVALID_TOPIC
    assert created(client, name="scored.name") == INVALID_TOPIC


def test_a_name_that_is_taken(node, client):
    assert created(client, name="plain") == 36


def test_a_name_twice_in_a_request(node, client):
    topic = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic, topic], timeout_ms=5000), 7)
    assert [each.error_code for each in answer.topics] == [INVALID_REQUEST]


@pytest.mark.parametrize("count", [0, -2, -(1 << 31), (1 << 31) - 1])
def test_a_number_of_partitions_that_cannot_be(node, client, count):
    assert created(client, name="wanted", num_partitions=count) in (INVALID_PARTITIONS, 44)


@pytest.mark.parametrize("factor", [0, 2, -2, 32_767])
def test_a_replication_factor_that_cannot_be(node, client, factor):
    assert created(client, name="wanted", replication_factor=factor) == INVALID_FACTOR


def test_an_assignment_that_cannot_be(node, client):
    for brokers in ([], [7], [1, 1], [-1]):
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
        code = created(
            client, name="wanted", num_partitions=-1, replication_factor=-1,
            assignments=[assignment],
        )  # fmt: skip
        assert code == INVALID_ASSIGNMENT


BAD_CONFIGS = [
    ("no.such.setting", "1"),
    ("", "1"),
    ("retention.ms", "long"),
    ("retention.ms", "-5"),
    ("segment.bytes", str(1 << 40)),
    ("segment.bytes", "1"),
    ("cleanup.policy", "keep"),
    ("compression.type", "rar"),
    ("min.insync.replicas", "0"),
    ("min.insync.replicas", None),
    ("max.message.bytes", "-1"),
    ("unclean.leader.election.enable", "perhaps"),
]


@pytest.mark.parametrize(("name", "text"), BAD_CONFIGS)
def test_a_bad_configuration(node, client, name, text):
    config = CreatableTopicConfig(name=name, value=text)
    assert created(client, name="wanted", configs=[config]) in (INVALID_CONFIG, INVALID_REQUEST)
    change = AlterableConfig(name=name, config_operation=0, value=text)
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="plain", configs=[change])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code in (INVALID_CONFIG, INVALID_REQUEST)


def test_an_unknown_topic(node, client):
    assert code_of(client, "no-such", batch()) == UNKNOWN_TOPIC
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        replica_id=-1, max_bytes=1000, topics=[FetchTopic(topic="no-such", partitions=[part])]
    )
    assert client.ask(fetch, 12).responses[0].partitions[0].error_code == UNKNOWN_TOPIC
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="no-such", count=5, assignments=None)], timeout_ms=5000
    )
    assert client.ask(more, 3).results[0].error_code == UNKNOWN_TOPIC
    gone = DeleteTopicsRequest(topic_names=["no-such"], timeout_ms=5000)
    assert client.ask(gone, 5).responses[0].error_code == UNKNOWN_TOPIC
    wanted = DescribeConfigsResource(resource_type=TOPIC, resource_name="no-such")
    answer = client.ask(DescribeConfigsRequest(resources=[wanted]), 4)
    assert answer.results[0].error_code == UNKNOWN_TOPIC


def test_an_unknown_topic_id(node, client):
    assert code_of(client, "", batch(), 13, topic_id=NOBODYS_ID) == UNKNOWN_ID
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic_id=NOBODYS_ID, partitions=[part])
    fetch = FetchRequest(max_bytes=1000, topics=[topic])
    assert client.ask(fetch, 17).responses[0].partitions[0].error_code == UNKNOWN_ID
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=NOBODYS_ID, name=None)])
    assert client.ask(asked, 12).topics[0].error_code == UNKNOWN_ID


def test_one_topic_a_hundred_thousand_times(node, client):
    """An answer does not grow by naming the same thing again."""
    asked = [MetadataRequestTopic(name="__consumer_offsets")] * 100_000
    client.socket.settimeout(60)
    assert len(client.ask(MetadataRequest(topics=asked), 12).topics) == 1
    wanted = [DescribeConfigsResource(resource_type=TOPIC, resource_name="plain")] * 100_000
    answer = client.ask(DescribeConfigsRequest(resources=wanted), 4)
    assert len(answer.results) == 1
