"""Fetch (API key 1): clients and followers read record batches.

KIP-227 (sessions), KIP-392 (preferred read replica), KIP-516 (topic ids), KIP-903 (replica epoch).
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    String,
    Struct,
    TopicUuid,
    Uuid,
)


class ReplicaState(Struct, constant=True):
    replica_id: Annotated[Int32, "15+"] = -1
    replica_epoch: Annotated[Int64, "15+"] = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, "9+"] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, "12+"] = -1
    log_start_offset: Annotated[Int64, "5+"] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, "17+", "tag 0"] = ZERO_UUID
    high_watermark: Annotated[Int64, "18+", "tag 1"] = 2**63 - 1


class FetchTopic(Struct):
    topic: Annotated[String, "0-12"] = ""
    topic_id: Annotated[TopicUuid, "13+"] = ZERO_TOPIC_ID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: Annotated[String, "7-12"] = ""
    topic_id: Annotated[TopicUuid, "13+"] = ZERO_TOPIC_ID
    partitions: Annotated[list[Int32], "7+"] = []


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: Annotated[NullableString, "12+", "tag 0"] = None
    replica_id: Annotated[Int32, "0-14"] = -1
    replica_state: Annotated[ReplicaState, "15+", "tag 1"] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, "7+"] = 0
    session_epoch: Annotated[Int32, "7+"] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], "7+"] = []
    rack_id: Annotated[String, "11+"] = ""


class EpochEndOffset(Struct, constant=True):
    epoch: Annotated[Int32, "12+"] = -1
    end_offset: Annotated[Int64, "12+"] = -1


class LeaderIdAndEpoch(Struct, constant=True):
    leader_id: Annotated[Int32, "12+"] = -1
    leader_epoch: Annotated[Int32, "12+"] = -1


class SnapshotId(Struct, constant=True):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, "5+"] = -1
    diverging_epoch: Annotated[EpochEndOffset, "12+", "tag 0"] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, "12+", "tag 1"] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, "12+", "tag 2"] = SnapshotId()
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Annotated[Int32, "11+"] = -1
    records: NullableRecords = None


class FetchableTopicResponse(Struct):
    topic: Annotated[String, "0-12"] = ""
    topic_id: Annotated[TopicUuid, "13+"] = ZERO_TOPIC_ID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Annotated[Int32, "16+"] = 0
    host: Annotated[String, "16+"] = ""
    port: Annotated[Int32, "16+"] = 0
    rack: Annotated[NullableString, "16+"] = None


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "7+"] = 0
    session_id: Annotated[Int32, "7+"] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], "16+", "tag 0"] = []
