"""AssignReplicasToDirs (API key 73): a broker says which of its folders hold what. KIP-858."""

from __future__ import annotations

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    TopicUuid,
    Uuid,
)


class PartitionData(Struct):
    partition_index: Int32 = 0


class TopicData(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partitions: list[PartitionData] = []


class DirectoryData(Struct):
    id: Uuid = ZERO_UUID
    topics: list[TopicData] = []


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[DirectoryData] = []


class AssignedPartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AssignedTopicData(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partitions: list[AssignedPartitionData] = []


class AssignedDirectoryData(Struct):
    id: Uuid = ZERO_UUID
    topics: list[AssignedTopicData] = []


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[AssignedDirectoryData] = []
