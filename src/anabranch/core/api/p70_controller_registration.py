"""ControllerRegistration: a controller says where it is reached and which features it supports.

KIP: KIP-919
Versions: 0
Behaviour: the active controller notes it in the metadata, so that every node can name all
    controllers. Below level 15 of metadata.version the record does not exist: UNSUPPORTED_VERSION.
    A controller that does not support a level in use is refused with the same code.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.brokers.controllers import register_controller
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.controller_registration import ControllerRegistrationResponse


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[ControllerRegistrationResponse]:
    """Register the controller."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return register_controller(controller.image, request.body)


def refuse(_request: Request, code: ErrorCode, sentence: str) -> ControllerRegistrationResponse:
    """An answer with the error."""
    return ControllerRegistrationResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=70,
    name="ControllerRegistration",
    versions=range(1),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-919",),
)
