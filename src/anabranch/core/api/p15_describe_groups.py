"""DescribeGroups: the members of classic groups, and what they were assigned.

KIP: KIP-430 (authorized operations), KIP-1043 (an error for groups that do not exist).
Versions: 0-6.
Behaviour: needs DESCRIBE on each group. Metadata and assignments are returned only for stable
    groups. A group that does not exist is Dead; from version 6 on with GROUP_ID_NOT_FOUND.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import (
    NOT_ASKED,
    Operation,
    ResourceType,
    authorized_operations,
)
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups.classic.group import Group, Member
from anabranch.core.coordination.groups.classic.states import DEAD, STABLE
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


def run(broker: Broker, request: Request, now_ms: int) -> DescribeGroupsResponse:
    """The answer, always at once; a group that is named twice is described once."""
    body: DescribeGroupsRequest = request.body
    groups = [
        _described(broker, request, group_id, now_ms) for group_id in dict.fromkeys(body.groups)
    ]
    for group in groups:
        group.authorized_operations = NOT_ASKED
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized_operations(
                broker.authorizer, request, ResourceType.GROUP, group.group_id
            )
    return DescribeGroupsResponse(groups=groups)


def _described(broker: Broker, request: Request, group_id: str, now_ms: int) -> DescribedGroup:
    if not group_allowed(broker, request, Operation.DESCRIBE, group_id):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    try:
        group = broker.groups.find(group_id, now_ms)
    except ApiError as error:
        return DescribedGroup(error_code=error.code, group_id=group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if request.version >= NOT_FOUND_SINCE:
            missing = ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            described.error_code, described.error_message = missing.code, missing.message
        return described
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is STABLE else "",
        members=[_member(group, member) for member in group.members.values()],
    )


def _member(group: Group, member: Member) -> DescribedGroupMember:
    is_stable = group.state is STABLE
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if is_stable else b"",
        member_assignment=member.assignment,
    )


HANDLER = Handler(
    api_key=15,
    name="DescribeGroups",
    versions=range(7),
    broker=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.GROUP),),
    kips=("KIP-430", "KIP-1043"),
)
