"""Where a request asks for rights among its other checks, as Kafka 4.1 answers (`compat acls-table`)."""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import Denying, InMemoryNode
from tests.core.controller.world import World

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.sync_group import SyncGroupRequest

OF_TOPIC = (Operation.DELETE, ResourceType.TOPIC, None)
OF_CLUSTER = (Operation.DELETE, ResourceType.CLUSTER, None)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def world(*denied):
    made = World()
    made.start(1)
    made.create("t", [1])
    made.controller.authorizer = Denying(*denied)
    return made


@pytest.mark.parametrize(
    ("denied", "existing", "absent"),
    [
        ((), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((OF_TOPIC,), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((OF_CLUSTER,), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((OF_TOPIC, OF_CLUSTER), REFUSED, REFUSED),
    ],
)
def test_a_right_on_the_cluster_or_on_the_topic_deletes(denied, existing, absent):
    made = world(*denied)
    codes = []
    for name in ("t", "absent"):
        (answer,) = made.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name)])).responses
        codes.append(answer.error_code)
    assert codes == [existing, absent]
    unknown = DeleteTopicState(None, TopicId(b"\7" * 16))
    (answer,) = made.ask(DeleteTopicsRequest(topics=[unknown])).responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_each_partition_is_told_that_nothing_may_be_reassigned():
    made = world((Operation.ALTER, ResourceType.CLUSTER, None))
    topics = [ReassignableTopic("t", [ReassignablePartition(0, [1]), ReassignablePartition(7)])]
    answer = made.ask(AlterPartitionReassignmentsRequest(topics=topics))
    told = [(each.partition_index, each.error_code) for each in answer.responses[0].partitions]
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (answer.error_code, answer.responses[0].name, told) == (
        code,
        "t",
        [(0, code), (7, code)],
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [(8, ErrorCode.INVALID_REQUEST), (4, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
def test_a_type_that_cannot_be_altered_is_told_before_rights(kind, code):
    made = world((Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None))
    resource = AlterConfigsResource(kind, "1", [AlterableConfig("a", "INFO")])
    (answer,) = made.ask(AlterConfigsRequest([resource])).responses
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.GROUP_AUTHORIZATION_FAILED), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)],
)
def test_a_protocol_that_is_missing_is_told_before_rights(version, code):
    node = InMemoryNode(authorizer=Denying((Operation.READ, ResourceType.GROUP, None)))
    assert node.send(SyncGroupRequest("g", 1, "m"), version).error_code == code
