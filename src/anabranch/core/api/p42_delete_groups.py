"""DeleteGroups: groups without members go, with their offsets.

KIP: KIP-229.
Versions: 0-2.
Behaviour: needs DELETE on each group. NON_EMPTY_GROUP while it has members; GROUP_ID_NOT_FOUND when
    there is none. The answer comes when all deletions are committed, as that of OffsetCommit does.
Skipped: nothing
"""

from __future__ import annotations

from typing import Any

from anabranch.core.access.authorize import Operation
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler, Outcome, Request, Wait
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups import offsets
from anabranch.core.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the records of all groups to be committed."""
    body: DeleteGroupsRequest = request.body
    codes = {
        group_id: _delete(broker, request, group_id, now_ms)
        for group_id in dict.fromkeys(body.groups_names)
    }
    waits = {name: code for name, code in codes.items() if isinstance(code, Wait)}
    if not waits:
        return _response(codes)

    def poll(now_ms: int, expired: bool) -> DeleteGroupsResponse | None:
        for name in tuple(waits):
            code = waits[name].poll(now_ms, expired)
            if code is not None:
                codes[name] = code
                del waits[name]
        return None if waits else _response(codes)

    keys = tuple(key for wait in waits.values() for key in wait.keys)
    return Wait(keys, max(wait.deadline_ms for wait in waits.values()), poll)


def _response(codes: dict[str, Any]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in codes.items()
        ]
    )


def _delete(broker: Broker, request: Request, group_id: str, now_ms: int) -> Any:
    """A code, or a Wait for one."""
    if not group_allowed(broker, request, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        group = broker.groups.find(group_id, now_ms)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        done = broker.groups.answer()
        offsets.delete_group(broker.groups, group, now_ms, done)
    except ApiError as error:
        return error.code
    return when_committed(broker, group.shard, done, now_ms, lambda code: code)


HANDLER = Handler(
    api_key=42,
    name="DeleteGroups",
    versions=range(3),
    broker=run,
    kips=("KIP-229",),
)
