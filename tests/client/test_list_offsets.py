"""Offsets of partitions, of which some have no leader, or one that cannot tell them yet."""

from __future__ import annotations

import pytest

from anabranch.client.cluster import BrokerAddress, Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import LATEST
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from anabranch.core.wire.messages.metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Losing(Cluster):
    """Broker 2, which led t-1, is gone, and its successor is nobody; the leader of t-2 is new, and
    that of t-3 is not registered any more."""

    def __init__(self):
        super().__init__("127.0.0.1:1", deadline_seconds=0.5)
        self.brokers = {each: BrokerAddress(each, "127.0.0.1", each, None) for each in (1, 2)}
        self.leaders_told = [(1, -1, 1, 3), (1, 2, 1, 3)]

    async def topic(self, name):
        told = self.leaders_told.pop() if len(self.leaders_told) > 1 else self.leaders_told[0]
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(told)
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    async def send_to(self, broker_id, message):
        if broker_id == 2:
            raise ConnectionLost("it is gone")
        not_yet = ErrorCode.OFFSET_NOT_AVAILABLE
        partitions = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                offset=7,
                error_code=not_yet if each.partition_index == 2 else ErrorCode.NONE,
            )
            for each in message.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", partitions)])


async def test_what_can_be_told_is_told_where_that_is_enough():
    assert await list_offsets(Losing(), "t", LATEST, ready_only=True) == {0: 7}


async def test_all_are_waited_for_otherwise():
    with pytest.raises(ApiError, match="t-1 has no leader"):
        await list_offsets(Losing(), "t", LATEST)
