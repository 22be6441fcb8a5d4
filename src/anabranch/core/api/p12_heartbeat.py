"""Heartbeat: a member of a classic group is alive, and learns whether it has to join again.

KIP: KIP-345 (static members).
Versions: 0-4.
Behaviour: needs READ on the group. REBALANCE_IN_PROGRESS tells the member to join again.
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
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def run(broker: Broker, request: Request, now_ms: int) -> HeartbeatResponse:
    """The answer, always at once."""
    body: HeartbeatRequest = request.body
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        code = members.heartbeat(
            broker.groups,
            body.group_id,
            body.generation_id,
            body.member_id,
            body.group_instance_id,
            now_ms,
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE  # the session is not counted yet either
    return HeartbeatResponse(error_code=code)


HANDLER = Handler(
    api_key=12,
    name="Heartbeat",
    versions=range(5),
    broker=run,
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    kips=("KIP-345",),
)
