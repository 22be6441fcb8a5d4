"""PlanCompaction (API key 10002): what a compaction job may do next. A request of Anabranch's
own."""

from __future__ import annotations

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
    Uuid,
)

PLAN, RENEW, RELEASE, LOOK = 0, 1, 2, 3
"""What is asked: to take the claim and plan; to keep the claim; to let it go; to plan without."""


class PlanCompactionRequest(Message, api_key=10002, versions="0", flexible="0+"):
    claim_id: Int64 = -1
    owner: String = ""
    ask: Int8 = PLAN
    after_topic_id: TopicUuid = ZERO_TOPIC_ID
    after_partition: Int32 = -1


class EpochOf(Struct):
    epoch: Int32 = -1
    start_offset: Int64 = -1


class SegmentToCompact(Struct):
    segment_id: Uuid = ZERO_UUID
    start_offset: Int64 = -1
    end_offset: Int64 = -1
    byte_size: Int64 = -1
    has_aborted: Bool = False
    leader_epochs: list[EpochOf] = []


class PartitionToCompact(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    topic_name: String = ""
    partition_index: Int32 = -1
    leader_id: Int32 = -1
    tiered_bytes: Int64 = -1
    dirty_bytes: Int64 = -1
    untiered_records: Int64 = -1
    now_ms: Int64 = -1
    delete_retention_ms: Int64 = -1
    most_bytes: Int64 = -1
    generation: Int64 = -1
    upto: Int64 = -1
    forgets: Bool = False
    segments: list[SegmentToCompact] = []


class PlanCompactionResponse(Message, api_key=10002, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    cluster_id: String = ""
    store_id: String = ""
    partitions: list[PartitionToCompact] = []
    is_last: Bool = True
    last_topic_id: TopicUuid = ZERO_TOPIC_ID
    last_partition: Int32 = -1
