"""RenewDelegationToken (API key 39): a token is good for longer. KIP-48."""

from __future__ import annotations

from anabranch.core.wire.schema import Bytes, Int16, Int32, Int64, Message


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
