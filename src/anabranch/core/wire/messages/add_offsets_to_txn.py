"""AddOffsetsToTxn (API key 25): a transaction will commit offsets of a group. KIP-98."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    String,
)


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
