"""SyncGroup: the leader brings the assignments, every member takes its own.

KIP: KIP-345 (static members), KIP-559 (protocol type and name).
Versions: 0-5.
Behaviour: needs READ on the group. The answer comes once the leader's assignments are written to
    `__consumer_offsets`.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, wait_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.answers import LONGEST_WAIT_MS
from anabranch.core.coordination.groups.classic import members
from anabranch.core.coordination.groups.classic.members import Sync
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The member's assignment, or a wait for it."""
    body: SyncGroupRequest = request.body
    names = (body.protocol_type, body.protocol_name)
    if request.version >= PROTOCOL_SINCE and None in names:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    asked = Sync(
        body.group_id,
        body.generation_id,
        body.member_id,
        body.group_instance_id,
        *names,
        {each.member_id: bytes(each.assignment) for each in body.assignments},
    )
    try:
        outcome = members.sync(broker.groups, asked, now_ms)
        if isinstance(outcome, SyncGroupResponse):
            return outcome
        shard = broker.groups.shard_of(body.group_id, now_ms)
    except ApiError as error:
        return SyncGroupResponse(error_code=_code(error))
    late = partial(SyncGroupResponse, error_code=ErrorCode.NOT_COORDINATOR)
    told: SyncGroupResponse | Wait = wait_committed(outcome, shard, now_ms, late, LONGEST_WAIT_MS)
    return told


def _code(error: ApiError) -> ErrorCode:
    """While groups are loaded a member has to join again: its generation may be over."""
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error.code


HANDLER = Handler(
    api_key=14,
    name="SyncGroup",
    versions=range(6),
    broker=run,
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    kips=("KIP-345", "KIP-559"),
)
