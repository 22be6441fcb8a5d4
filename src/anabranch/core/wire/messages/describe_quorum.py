"""DescribeQuorum (API key 55). KIP-595, KIP-836, KIP-853."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Uint16,
    Uuid,
)


class QuorumPartitionData(Struct):
    partition_index: Int32 = 0


class QuorumTopicData(Struct):
    topic_name: String = ""
    partitions: list[QuorumPartitionData] = []


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[QuorumTopicData] = []


class ReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, "2+"] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, "1+"] = -1
    last_caught_up_timestamp: Annotated[Int64, "1+"] = -1


class DescribedPartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[NullableString, "2+"] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class DescribedTopicData(Struct):
    topic_name: String = ""
    partitions: list[DescribedPartitionData] = []


class QuorumListener(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class QuorumNode(Struct):
    node_id: Int32 = 0
    listeners: list[QuorumListener] = []


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = 0
    error_message: Annotated[NullableString, "2+"] = ""
    topics: list[DescribedTopicData] = []
    nodes: Annotated[list[QuorumNode], "2+"] = []
