"""SyncGroup (API key 14): the leader hands out assignments, the others fetch theirs.

Source: KIP-345, KIP-559.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "3+"] = None
    protocol_type: Annotated[NullableString, "5+"] = None
    protocol_name: Annotated[NullableString, "5+"] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableString, "5+"] = None
    protocol_name: Annotated[NullableString, "5+"] = None
    assignment: Bytes = b""
