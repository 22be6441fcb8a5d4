"""ElectLeaders (API key 43): elect preferred leaders again, or any leader. KIP-183, KIP-460."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class TopicPartitions(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: Annotated[Int8, "1+"] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "1+"] = 0
    replica_election_results: list[ReplicaElectionResult] = []
