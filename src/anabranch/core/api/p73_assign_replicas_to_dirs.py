"""AssignReplicasToDirs: a broker with several folders says in which of them its replicas lie.

KIP: KIP-858
Versions: 0
Behaviour: each partition is answered by itself. A folder that is not among those of the broker's
    registration has failed meanwhile: its replicas leave their ISRs at once. A replica that counts
    in its partition and whose folder is gone is refused with INELIGIBLE_REPLICA, where Kafka takes
    the new folder: it has to catch up before it counts again.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.brokers.directories import assign
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[AssignReplicasToDirsResponse]:
    """Note the folders."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")
    return assign(controller.state, controller.sessions, controller.config, request.body)


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> AssignReplicasToDirsResponse:
    """An answer with the error."""
    return AssignReplicasToDirsResponse(error_code=code)


HANDLER = Handler(
    api_key=73,
    name="AssignReplicasToDirs",
    versions=range(1),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-858",),
)
