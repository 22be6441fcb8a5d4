"""BrokerRegistration: a broker says that it is here, and gets its epoch.

KIP: KIP-631, KIP-858 (directory ids), KIP-966 (previous epoch tells a clean stop)
Versions: 0-4
Behaviour: checks in Kafka's order: cluster id, another live incarnation, directories, features. The
    registered incarnation is superseded before its session ends when its process is known to be
    gone, so a restarted node does not wait for its own session; while it sends heartbeats, another
    process on a copy of its folders is refused. Folders that are older than the last incarnation
    (`FolderHistory` in `core/wire/own_fields.py`) count for nothing until they were in sync again.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.brokers.lifecycle import register
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.broker_registration import BrokerRegistrationResponse


def decide(
    controller: Controller, request: Request, now_ms: int
) -> Result[BrokerRegistrationResponse]:
    """Register the broker."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return register(
        controller.state,
        controller.sessions,
        controller.config,
        controller.cluster_id,
        request.body,
        now_ms,
    )


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> BrokerRegistrationResponse:
    """An answer without an epoch."""
    return BrokerRegistrationResponse(error_code=code)


HANDLER = Handler(
    api_key=62,
    name="BrokerRegistration",
    versions=range(5),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-631", "KIP-858", "KIP-966"),
)
