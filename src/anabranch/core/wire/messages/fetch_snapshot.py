"""FetchSnapshot (API key 59): a snapshot of the metadata log, in chunks. KIP-630."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Records,
    String,
    Struct,
    Uint16,
    Uuid,
)


class SnapshotId(Struct, constant=True):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = SnapshotId()
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, "1+", "tag 0"] = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: String = ""
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = []


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: Annotated[NullableString, "tag 0"] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[FetchSnapshotRequestTopicSnapshot] = []


class LeaderIdAndEpoch(Struct, constant=True):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: Annotated[LeaderIdAndEpoch, "tag 0"] = LeaderIdAndEpoch()
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: String = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = []


class NodeEndpoint(Struct):
    node_id: Annotated[Int32, "1+"] = 0
    host: Annotated[String, "1+"] = ""
    port: Annotated[Uint16, "1+"] = 0


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[NodeEndpoint], "1+", "tag 0"] = []
