"""CreateDelegationToken (API key 38): a token is made. KIP-48, KIP-373."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
)


class CreatableRenewers(Struct):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: Annotated[NullableString, "3+"] = ""
    owner_principal_name: Annotated[NullableString, "3+"] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, "3+"] = ""
    token_requester_principal_name: Annotated[String, "3+"] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
