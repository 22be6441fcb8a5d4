"""Heartbeat (API key 12): a member of a classic group is alive. KIP-345."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    NullableString,
    String,
)


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "3+"] = None


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
