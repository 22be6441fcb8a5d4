"""TierSegment (API key 10001): a step of a segment that a tiering job makes, at the partition's
leader. A request of Anabranch's own."""

from __future__ import annotations

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    TopicUuid,
    Uuid,
)

START, STANDS, FINISH = 0, 1, 2
"""Steps: the try begins; whether it may go on; all of its objects are stored."""


class TierSegmentRequest(Message, api_key=10001, versions="0", flexible="0+"):
    claim_id: Int64 = -1
    step: Int8 = 0
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partition_index: Int32 = -1
    segment_id: Uuid = ZERO_UUID
    start_offset: Int64 = -1
    end_offset: Int64 = -1
    max_timestamp: Int64 = -1
    byte_size: Int64 = -1
    records_epoch: Int32 = 0


class TierSegmentResponse(Message, api_key=10001, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    broker_id: Int32 = -1
    leader_epoch: Int32 = -1
    tiered_end_offset: Int64 = -1
