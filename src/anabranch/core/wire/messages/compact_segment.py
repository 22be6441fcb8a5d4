"""CompactSegment (API key 10003): a step of segments that a compaction job makes, at the
partition's leader. A request of Anabranch's own."""

from __future__ import annotations

from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.core.wire.messages.plan_compaction import EpochOf
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Struct,
    TopicUuid,
    Uuid,
)

START, STANDS, SWAP = 0, 1, 2
"""Steps: a try begins; whether it may go on; all objects of a pass are stored."""


class SegmentSwap(Struct):
    segment_id: Uuid = ZERO_UUID
    replaced: list[Uuid] = []


class CompactSegmentRequest(Message, api_key=10003, versions="0", flexible="0+"):
    claim_id: Int64 = -1
    step: Int8 = 0
    topic_id: TopicUuid = ZERO_TOPIC_ID
    partition_index: Int32 = -1
    segment_id: Uuid = ZERO_UUID
    start_offset: Int64 = -1
    end_offset: Int64 = -1
    max_timestamp: Int64 = -1
    byte_size: Int64 = -1
    has_aborted: Bool = False
    leader_epochs: list[EpochOf] = []
    metadata: Bytes = b""
    swaps: list[SegmentSwap] = []


class CompactSegmentResponse(Message, api_key=10003, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    broker_id: Int32 = -1
    leader_epoch: Int32 = -1
