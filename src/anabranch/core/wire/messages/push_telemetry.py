"""PushTelemetry (API key 72): a client's metrics. KIP-714."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    Uuid,
)


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
