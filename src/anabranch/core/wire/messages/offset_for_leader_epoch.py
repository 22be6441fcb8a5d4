"""OffsetForLeaderEpoch (API key 23): where a leader epoch ended. KIP-101, KIP-320."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: Annotated[Int32, "3+"] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
