"""DeleteGroups: groups without members go, with their offsets.

KIP: KIP-229.
Versions: 0-2.
Behaviour: needs DELETE on each group. NON_EMPTY_GROUP while it has members; GROUP_ID_NOT_FOUND when
    there is none.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed
from anabranch.core.api.handler import Handler, Request
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups import offsets
from anabranch.core.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def run(broker: Broker, request: Request, now_ms: int) -> DeleteGroupsResponse:
    """The answer, always at once."""
    body: DeleteGroupsRequest = request.body
    results = [
        DeletableGroupResult(
            group_id=group_id, error_code=_delete(broker, request, group_id, now_ms)
        )
        for group_id in dict.fromkeys(body.groups_names)
    ]
    return DeleteGroupsResponse(results=results)


def _delete(broker: Broker, request: Request, group_id: str, now_ms: int) -> ErrorCode:
    if not group_allowed(broker, request, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        group = broker.groups.find(group_id, now_ms)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        offsets.delete_group(broker.groups, group, now_ms)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


HANDLER = Handler(
    api_key=42,
    name="DeleteGroups",
    versions=range(3),
    broker=run,
    kips=("KIP-229",),
)
