"""Envelope (API key 58): a broker passes a client's request on to the controller. KIP-590."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Bytes,
    Int16,
    Message,
    NullableBytes,
)


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Bytes = b""
    request_principal: NullableBytes = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: NullableBytes = None
    error_code: Int16 = 0
