"""OffsetCommit (API key 8): a group member stores how far it has read.

Source: KIP-98, KIP-320, KIP-848, KIP-1211.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "6+"] = -1
    committed_metadata: NullableString = ""


class OffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message, api_key=8, versions="2-9", flexible="8+"):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "7+"] = None
    retention_time_ms: Annotated[Int64, "2-4"] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message, api_key=8, versions="2-9", flexible="8+"):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    topics: list[OffsetCommitResponseTopic] = []
