"""LeaveGroup: members leave a classic group at once, so that the others need not wait.

KIP: KIP-345 (several members, static ones by instance id), KIP-800 (the reason).
Versions: 0-5.
Behaviour: needs READ on the group. Each member has its own error from version 3 on; before, the
    one member's error is the answer's.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups.classic import members
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

MANY_SINCE = 3


def run(broker: Broker, request: Request, now_ms: int) -> LeaveGroupResponse:
    """The answer, always at once."""
    body: LeaveGroupRequest = request.body
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not body.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    leaving = body.members
    if request.version < MANY_SINCE:
        leaving = [MemberIdentity(member_id=body.member_id)]
    response = LeaveGroupResponse()
    try:
        for each in leaving:
            code = members.leave(
                broker.groups, body.group_id, each.member_id, each.group_instance_id, now_ms
            )
            response.members.append(
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=code,
                )
            )
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if request.version < MANY_SINCE:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response


HANDLER = Handler(
    api_key=13,
    name="LeaveGroup",
    versions=range(6),
    broker=run,
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    kips=("KIP-345", "KIP-800"),
)
