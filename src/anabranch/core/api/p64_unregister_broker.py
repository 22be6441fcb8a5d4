"""UnregisterBroker: the cluster forgets a broker that will not come back.

KIP: KIP-631, KIP-590 (forwarded).
Versions: 0.
Behaviour: needs ALTER on the cluster. The broker leaves every ISR and every set of eligible
    leaders, and its registration goes; replica lists keep its id. One that still runs is refused by
    its next heartbeat and stops. A controller of that id is forgotten too, which Kafka cannot do;
    one that still runs registers again.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.brokers.lifecycle import unregister
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerResponse


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[UnregisterBrokerResponse]:
    """Forget the broker."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return unregister(
        controller.state, controller.sessions, controller.config, request.body.broker_id
    )


def refuse(_request: Request, code: ErrorCode, sentence: str) -> UnregisterBrokerResponse:
    """An answer with the error."""
    return UnregisterBrokerResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=64,
    name="UnregisterBroker",
    versions=range(1),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-590", "KIP-631"),
)
