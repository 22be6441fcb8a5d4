"""ListGroups: the groups that this broker coordinates.

KIP: KIP-518 (filter by state), KIP-848 (by type).
Versions: 0-5.
Behaviour: needs DESCRIBE on the cluster, else lists the groups that may be described. Filters know
    no upper and lower case. While groups are still loaded, those that are there are listed beside
    COORDINATOR_LOAD_IN_PROGRESS.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC = "classic"


def run(broker: Broker, request: Request, _now_ms: int) -> ListGroupsResponse:
    """The answer, always at once."""
    body: ListGroupsRequest = request.body
    states = {name.lower() for name in body.states_filter}
    types = {name.lower() for name in body.types_filter}
    may_see_all = cluster_allowed(broker.authorizer, request, Operation.DESCRIBE)
    response = ListGroupsResponse()
    if broker.groups.loading:
        response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if types and CLASSIC not in types:
        return response
    for group in broker.groups.groups.values():
        if states and group.state.value.lower() not in states:
            continue
        if may_see_all or group_allowed(broker, request, Operation.DESCRIBE, group.group_id):
            response.groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
            )
    return response


HANDLER = Handler(
    api_key=16,
    name="ListGroups",
    versions=range(6),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.CLUSTER),
        Need(Operation.DESCRIBE, ResourceType.GROUP),
    ),
    kips=("KIP-518", "KIP-848"),
)
