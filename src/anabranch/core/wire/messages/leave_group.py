"""LeaveGroup (API key 13): members leave a classic group, several at once from version 3.

Source: KIP-345, KIP-800.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class MemberIdentity(Struct):
    member_id: Annotated[String, "3+"] = ""
    group_instance_id: Annotated[NullableString, "3+"] = None
    reason: Annotated[NullableString, "5+"] = None


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: String = ""
    member_id: Annotated[String, "0-2"] = ""
    members: Annotated[list[MemberIdentity], "3+"] = []


class MemberResponse(Struct):
    member_id: Annotated[String, "3+"] = ""
    group_instance_id: Annotated[NullableString, "3+"] = ""
    error_code: Annotated[Int16, "3+"] = 0


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], "3+"] = []
