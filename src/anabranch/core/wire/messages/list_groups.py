"""ListGroups (API key 16): the groups that a broker coordinates. KIP-518, KIP-848."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    String,
    Struct,
)


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: Annotated[list[String], "4+"] = []
    types_filter: Annotated[list[String], "5+"] = []


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, "4+"] = ""
    group_type: Annotated[String, "5+"] = ""


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
