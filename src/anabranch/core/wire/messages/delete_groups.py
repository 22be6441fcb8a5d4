"""DeleteGroups (API key 42): groups without members are deleted. KIP-229."""

from __future__ import annotations

from anabranch.core.wire.schema import (
    Int16,
    Int32,
    Message,
    String,
    Struct,
)


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[String] = []


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
