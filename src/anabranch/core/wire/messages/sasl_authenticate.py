"""SaslAuthenticate (API key 36): one message of a mechanism, and its answer. KIP-152, KIP-368."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import Bytes, Int16, Int64, Message, NullableString


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, "1+"] = 0
