"""ListOffsets (API key 2): offsets by timestamp and by special timestamp. KIP-79, KIP-734."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, "4+"] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message, api_key=2, versions="1-10", flexible="6+"):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, "2+"] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, "10+"] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, "4+"] = -1


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message, api_key=2, versions="1-10", flexible="6+"):
    throttle_time_ms: Annotated[Int32, "2+"] = 0
    topics: list[ListOffsetsTopicResponse] = []
