"""AlterPartitionReassignments (API key 45): move replicas, or cancel a move. KIP-455, KIP-860."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class ReassignableTopic(Struct):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, "1+"] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReassignableTopicResponse(Struct):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, "1+"] = True
    error_code: Int16 = 0
    error_message: NullableString = ""
    responses: list[ReassignableTopicResponse] = []
