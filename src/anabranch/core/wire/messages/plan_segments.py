"""PlanSegments (API key 10000): what a tiering job may do next. A request of Anabranch's own."""

from __future__ import annotations

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
)


class PlanSegmentsRequest(Message, api_key=10000, versions="0", flexible="0+"):
    claim_id: Int64 = -1
    owner: String = ""
    is_done: Bool = False
    after_topic_id: TopicUuid = ZERO_TOPIC_ID
    after_partition: Int32 = -1


class PlannedRun(Struct):
    object_index: Int32 = -1
    base_offset: Int64 = -1
    end_offset: Int64 = -1
    byte_offset: Int64 = -1
    byte_size: Int64 = -1
    max_timestamp: Int64 = -1
    timestamp_type: Int8 = 0


class PlannedPartition(Struct):
    topic_id: TopicUuid = ZERO_TOPIC_ID
    topic_name: String = ""
    partition_index: Int32 = -1
    leader_id: Int32 = -1
    start_offset: Int64 = -1
    end_offset: Int64 = -1
    before_segment_id: Bytes = b""
    before_start_offset: Int64 = -1
    before_end_offset: Int64 = -1
    runs: list[PlannedRun] = []
    records_epoch: Int32 = 0


class PlanSegmentsResponse(Message, api_key=10000, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    cluster_id: String = ""
    store_id: String = ""
    commit_number: Int64 = -1
    object_keys: list[String] = []
    partitions: list[PlannedPartition] = []
    is_last: Bool = True
    last_topic_id: TopicUuid = ZERO_TOPIC_ID
    last_partition: Int32 = -1
