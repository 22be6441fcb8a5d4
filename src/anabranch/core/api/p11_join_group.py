"""JoinGroup: a member joins a classic group and waits for its next generation.

KIP: KIP-62, KIP-345 (static members), KIP-394 (member ids first), KIP-800, KIP-814.
Versions: 0-9.
Behaviour: needs READ on the group. From version 4 on a new dynamic member is first given its id
    (MEMBER_ID_REQUIRED). The answer comes when all have joined or their time is over; the leader's
    names the members. A member that comes back with nothing new hears of the generation that there
    is, once a record shows that this broker still coordinates (Kafka: at once). A name is chosen by
    the coordinator: the client id (static: the instance id) and a random id.
Skipped: upgrading a KIP-848 group's members one by one.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, wait_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.answers import LONGEST_WAIT_MS
from anabranch.core.coordination.groups.classic import members
from anabranch.core.coordination.groups.classic.members import Join
from anabranch.core.coordination.groups.classic.rebalance import join_refused
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome, then
from anabranch.core.request import Request
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_SINCE = 1
KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
MOST_READABLE = 255
"""Letters of a client's or an instance's name in a member id, which goes into answers and records:
a longer string than 32767 bytes could not be read."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The member's generation, or a wait for it."""
    body: JoinGroupRequest = request.body
    version = request.version
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        refused = join_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, body.member_id)
        return _in_version(refused, version)
    try:
        outcome = members.join(broker.groups, _asked(broker, request), now_ms)
        if isinstance(outcome, JoinGroupResponse):
            return _in_version(outcome, version)
        shard = broker.groups.shard_of(body.group_id, now_ms)
    except ApiError as error:
        return _in_version(join_refused(error.code, body.member_id), version)
    late = partial(join_refused, ErrorCode.NOT_COORDINATOR, body.member_id)
    if shard.pending_effects:  # who comes back waits for a record's replicas
        waiting = wait_committed(outcome, shard, now_ms, late, LONGEST_WAIT_MS)
    else:
        waiting = outcome.wait(now_ms, late)
    return then(waiting, partial(_in_version, version=version))


def _asked(broker: Broker, request: Request) -> Join:
    body: JoinGroupRequest = request.body
    version = request.version
    client_id = request.client_id or ""
    instance_id = body.group_instance_id
    random_id = UUID(int=broker.random.getrandbits(128), version=4)
    readable = client_id if instance_id is None else instance_id
    rebalance_timeout_ms = body.session_timeout_ms
    if version >= REBALANCE_TIMEOUT_SINCE and body.rebalance_timeout_ms >= 0:
        rebalance_timeout_ms = body.rebalance_timeout_ms
    return Join(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{request.client_host}",
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        new_member_id=f"{readable[:MOST_READABLE]}-{random_id}",
        needs_known_id=version >= KNOWN_ID_SINCE and instance_id is None,
        may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
    )


def _in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < NULL_PROTOCOL_SINCE and response.protocol_name is None:
        response.protocol_name = ""
    return response


HANDLER = Handler(
    api_key=11,
    name="JoinGroup",
    versions=range(10),
    broker=run,
    needs=(Need(Operation.READ, ResourceType.GROUP),),
    kips=("KIP-62", "KIP-345", "KIP-394", "KIP-800", "KIP-814"),
    skipped=("Members of a KIP-848 group cannot join with the classic protocol.",),
)
