"""BrokerHeartbeat: a broker reports its state, and asks to be unfenced, fenced or shut down.

KIP: KIP-631, KIP-858 (offline directories)
Versions: 0-1
Behaviour: the contact counts even when nothing changes. A fenced broker is unfenced when it has
    read its own registration; one that shuts down first hands over its leaderships. Partitions in a
    folder that is reported as failed get other leaders. A controller that has released its lease
    and may take it again records the contact, and answers NOT_CONTROLLER.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.brokers.lifecycle import heartbeat
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatResponse


def decide(
    controller: Controller, request: Request, now_ms: int
) -> Result[BrokerHeartbeatResponse]:
    """Take the heartbeat."""
    if not _is_allowed(controller, request):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return heartbeat(controller.state, controller.sessions, controller.config, request.body, now_ms)


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> BrokerHeartbeatResponse:
    """An answer with the error."""
    return BrokerHeartbeatResponse(error_code=code)


def handle(controller: Controller, request: Request, now_ms: int) -> Outcome:
    """Take the heartbeat where that is this controller's, else note it and refuse."""
    if not controller.active and _is_allowed(controller, request):
        controller.sessions.hear_again(request.body.broker_id, request.body.broker_epoch, now_ms)
    return _decides(controller, request, now_ms)


def _is_allowed(controller: Controller, request: Request) -> bool:
    return cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION)


_decides = decides(decide, refuse)

HANDLER = Handler(
    api_key=63,
    name="BrokerHeartbeat",
    versions=range(2),
    controller=handle,
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-631", "KIP-858"),
)
