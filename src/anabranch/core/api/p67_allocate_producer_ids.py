"""AllocateProducerIds: a broker gets the next thousand producer ids.

KIP: KIP-730
Versions: 0
Behaviour: blocks of 1000, each given once.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.producer_ids import allocate
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[AllocateProducerIdsResponse]:
    """Hand out a block."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return allocate(controller.state, request.body)


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> AllocateProducerIdsResponse:
    """An answer without a block."""
    return AllocateProducerIdsResponse(error_code=code)


HANDLER = Handler(
    api_key=67,
    name="AllocateProducerIds",
    versions=range(1),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-730",),
)
