"""What is asked of a cluster while a controller changes, or a topic goes."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.partitions import settings_of
from anabranch.client.reassignments import under_way
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class Scripted(Cluster):
    """Answers with these responses, in order, or raises them."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("127.0.0.1:1")
        self._answers = list(answers)

    async def send(self, message: Any) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_moves_are_asked_for_again_while_that_can_help():
    partition = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[]
    )
    topic = OngoingTopicReassignment(name="t", partitions=[partition])
    cluster = Scripted(
        ConnectionLost("the controller ended"),
        ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER),
        ListPartitionReassignmentsResponse(topics=[topic]),
    )
    found = asyncio.run(under_way(cluster))
    assert found == {TopicPartition("t", 0): Move((1, 2), (2,), ())}


def test_a_topic_that_goes_meanwhile_hides_the_settings_of_no_other():
    gone = DescribeConfigsResult(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, resource_type=2, resource_name="gone"
    )
    setting = DescribeConfigsResourceResult(name="min.insync.replicas", value="2")
    stays = DescribeConfigsResult(resource_type=2, resource_name="stays", configs=[setting])
    cluster = Scripted(DescribeConfigsResponse(results=[gone, stays]))
    found = asyncio.run(settings_of(cluster, ["gone", "stays"]))
    assert found == {"stays": {"min.insync.replicas": "2"}}
