"""JoinGroup (API key 11): a member joins a classic group and learns its generation.

Source: KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
)


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, "1+"] = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "5+"] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[NullableString, "8+"] = None


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "5+"] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Annotated[Int32, "2+"] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, "7+"] = None
    protocol_name: Annotated[NullableString, "nullable 7+"] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, "9+"] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []
