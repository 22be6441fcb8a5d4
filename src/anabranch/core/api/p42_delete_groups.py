"""DeleteGroups: groups without members go, with their offsets.

KIP: KIP-229.
Versions: 0-2.
Behaviour: needs DELETE on each group. NON_EMPTY_GROUP while it has members; GROUP_ID_NOT_FOUND when
    there is none. The answer comes when all deletions are committed, as that of OffsetCommit does.
Skipped: nothing
"""

from __future__ import annotations

from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome, when_all
from anabranch.core.request import Request
from anabranch.core.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the records of all groups to be committed."""
    body: DeleteGroupsRequest = request.body
    names = tuple(dict.fromkeys(body.groups_names))

    def respond(codes: list[ErrorCode]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=group_id, error_code=code)
                for group_id, code in zip(names, codes, strict=True)
            ]
        )

    parts = [_delete(broker, request, group_id, now_ms) for group_id in names]
    return when_all(parts, respond)


def _delete(broker: Broker, request: Request, group_id: str, now_ms: int) -> Any:
    """A code, or a Wait for one."""
    if not group_allowed(broker, request, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        shard = broker.groups.shard_of(group_id, now_ms)
        group = broker.groups.find(group_id, now_ms)
        done = broker.groups.answer()
        if group is None:
            shard.prove(done, now_ms)
        else:
            offsets.delete_group(broker.groups, group, now_ms, done)
    except ApiError as error:
        return error.code
    deleted = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NONE

    def tell(code: ErrorCode) -> ErrorCode:
        return deleted if code is ErrorCode.NONE else code

    return when_committed(broker, shard, done, now_ms, tell)


HANDLER = Handler(
    api_key=42,
    name="DeleteGroups",
    versions=range(3),
    broker=run,
    needs=(Need(Operation.DELETE, ResourceType.GROUP),),
    kips=("KIP-229",),
)
