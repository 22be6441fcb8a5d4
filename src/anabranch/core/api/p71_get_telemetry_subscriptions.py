"""GetTelemetrySubscriptions: which metrics a client should push. None.

KIP: KIP-714.
Versions: 0. Not advertised, as Kafka does not advertise it without a telemetry receiver.
Behaviour: gives the client an instance id if it has none, and a subscription to no metrics.
Skipped: subscriptions, and throttling clients that ask too often.
"""

from __future__ import annotations

from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.telemetry import (
    COMPRESSIONS,
    MAX_BYTES,
    PUSH_INTERVAL_MS,
    subscription_id,
)
from anabranch.core.request import Request
from anabranch.core.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from anabranch.core.wire.schema import ZERO_UUID


def run(broker: Broker, request: Request, _now_ms: int) -> GetTelemetrySubscriptionsResponse:
    """The subscription to nothing."""
    body: GetTelemetrySubscriptionsRequest = request.body
    instance_id = body.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = broker.random.randbytes(16)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription_id(instance_id),
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=[],
    )


HANDLER = Handler(
    api_key=71,
    name="GetTelemetrySubscriptions",
    versions=range(1),
    broker=run,
    advertised=range(0),
    kips=("KIP-714",),
    skipped=("There is no telemetry receiver, so clients are asked for no metrics.",),
)
