"""UnregisterBroker (API key 64): forget a broker that will not come back. KIP-631."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    NullableString,
)


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
