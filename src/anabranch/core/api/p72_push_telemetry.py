"""PushTelemetry: metrics of a client. They are checked and dropped.

KIP: KIP-714.
Versions: 0. Not advertised, as Kafka does not advertise it without a telemetry receiver.
Behaviour: an instance id is needed (INVALID_REQUEST), the subscription must be the current one
    (UNKNOWN_SUBSCRIPTION_ID), the compression known, the size within the limit
    (TELEMETRY_TOO_LARGE).
Skipped: receiving metrics, and throttling clients that push too often.
"""

from __future__ import annotations

from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.telemetry import COMPRESSIONS, MAX_BYTES, subscription_id
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from anabranch.core.wire.schema import ZERO_UUID


def run(_broker: Broker, request: Request, _now_ms: int) -> PushTelemetryResponse:
    """Check, and drop."""
    return PushTelemetryResponse(error_code=_judge(request.body))


def _judge(body: PushTelemetryRequest) -> ErrorCode:
    if body.client_instance_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST
    if body.subscription_id != subscription_id(body.client_instance_id):
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if body.compression_type not in (0, *COMPRESSIONS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(body.metrics) > MAX_BYTES:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE


HANDLER = Handler(
    api_key=72,
    name="PushTelemetry",
    versions=range(1),
    broker=run,
    advertised=range(0),
    kips=("KIP-714",),
    skipped=("Metrics are dropped.",),
)
