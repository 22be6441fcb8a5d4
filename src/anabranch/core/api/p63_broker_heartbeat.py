"""BrokerHeartbeat: a broker is alive, has read this far, and wants to serve, pause or leave.

KIP: KIP-631, KIP-858 (offline directories)
Versions: 0-1
Behaviour: the contact counts even when nothing changes. A fenced broker is unfenced when it has
    read its own registration; one that wants to leave first gives its leaderships away. What lies
    in a folder that is reported as failed gets other leaders.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.api.handler import Handler, Request
from anabranch.core.controller.brokers import heartbeat
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatResponse


def decide(
    controller: Controller, request: Request, now_ms: int
) -> Result[BrokerHeartbeatResponse]:
    """Take the heartbeat."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return heartbeat(controller.state, controller.sessions, controller.config, request.body, now_ms)


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> BrokerHeartbeatResponse:
    """An answer with the error."""
    return BrokerHeartbeatResponse(error_code=code)


HANDLER = Handler(
    api_key=63,
    name="BrokerHeartbeat",
    versions=range(2),
    controller=decides(decide, refuse),
    kips=("KIP-631", "KIP-858"),
)
