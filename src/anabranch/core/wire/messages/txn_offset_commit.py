"""TxnOffsetCommit (API key 28): a transaction stores how far a group has read.

Source: KIP-98, KIP-447 (which member commits), KIP-890 (version 5: adds the group by itself).
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


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, "2+"] = -1
    committed_metadata: NullableString = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, "3+"] = -1
    member_id: Annotated[String, "3+"] = ""
    group_instance_id: Annotated[NullableString, "3+"] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
