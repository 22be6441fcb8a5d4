"""DescribeGroups (API key 15): members and state of classic groups. KIP-430, KIP-1043."""

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


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[String] = []
    include_authorized_operations: Annotated[Bool, "3+"] = False


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, "4+"] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: Annotated[NullableString, "6+"] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, "3+"] = -2147483648


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    groups: list[DescribedGroup] = []
