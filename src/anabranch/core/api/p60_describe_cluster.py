"""DescribeCluster: the brokers or controllers of the cluster.

KIP: KIP-700, KIP-919 (endpoint types), KIP-1073 (fenced brokers).
Versions: 0-2.
Behaviour: the brokers that can be reached on the asking listener, from version 2 on also fenced
    ones if asked. The controller listener answers for controllers, which is how clients with
    bootstrap.controllers find them. Asked for the other kind, both say MISMATCHED_ENDPOINT_TYPE. A
    tagged field of Anabranch returns which brokers are cordoned, and which have a folder without
    space.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import (
    CLUSTER,
    NOT_ASKED,
    Authorizer,
    Operation,
    ResourceType,
    authorized_operations,
    cluster_allowed,
)
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.metadata_view import some_alive_broker
from anabranch.core.broker.gate import Need
from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.controller.brokers.full_folders import full_folders
from anabranch.core.controller.controller import Controller
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.core.wire.own_fields import Cordoned, has_own, tagged

BROKERS = 1
CONTROLLERS = 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeClusterResponse:
    """List the brokers."""
    body: DescribeClusterRequest = request.body
    endpoint_type = body.endpoint_type if request.version > 0 else BROKERS
    if endpoint_type != BROKERS:
        return _mismatch(BROKERS, endpoint_type)
    return DescribeClusterResponse(
        unknown_tagged_fields=_told(broker) if has_own(body) else None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=some_alive_broker(broker.image, broker.broker_id),
        brokers=_brokers(broker, request),
        cluster_authorized_operations=_operations(broker.authorizer, request),
    )


def _told(broker: Broker) -> dict[int, bytes]:
    closed, full = cordoned(broker.image), full_folders(broker.image)
    return tagged(Cordoned(brokers=sorted(closed), full=sorted(full)))


def run_controller(
    controller: Controller, request: Request, _now_ms: int
) -> DescribeClusterResponse:
    """Say where the controllers are, and which of them is active."""
    body: DescribeClusterRequest = request.body
    endpoint_type = body.endpoint_type if request.version > 0 else BROKERS
    if endpoint_type != CONTROLLERS:
        return _mismatch(CONTROLLERS, endpoint_type)
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=controller.cluster_id,
        controller_id=controller.active_id,
        brokers=_controllers(controller, request.listener),
        cluster_authorized_operations=_operations(controller.authorizer, request),
    )


def _controllers(controller: Controller, listener: str) -> list[DescribeClusterBroker]:
    """Every registered controller, and the one that answers wherever it knows itself to be."""
    places = {
        controller_id: (endpoint.host, endpoint.port)
        for controller_id, each in controller.known.controllers.items()
        if (endpoint := each.endpoint(listener)) is not None
    }
    places[controller.node_id] = controller.endpoint
    return [
        DescribeClusterBroker(broker_id=controller_id, host=host, port=port)
        for controller_id, (host, port) in sorted(places.items())
    ]


def _operations(authorizer: Authorizer, request: Request) -> int:
    if not request.body.include_cluster_authorized_operations:
        return NOT_ASKED
    if not cluster_allowed(authorizer, request, Operation.DESCRIBE):
        return 0
    return authorized_operations(authorizer, request, ResourceType.CLUSTER, CLUSTER)


def _mismatch(asked: int, endpoint_type: int) -> DescribeClusterResponse:
    name = _NAMES.get(endpoint_type)
    if name is None:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {endpoint_type}",
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        error_message=f"The request was sent to an endpoint of type {_NAMES[asked]}, but we wanted "
        f"an endpoint of type {name}",
        brokers=[],
    )


def _brokers(broker: Broker, request: Request) -> list[DescribeClusterBroker]:
    fenced_too = request.version >= 2 and request.body.include_fenced_brokers
    found = []
    for broker_id, each in sorted(broker.image.brokers.items()):
        endpoint = each.endpoint(request.listener)
        if endpoint is None or (each.fenced and not fenced_too):
            continue
        found.append(
            DescribeClusterBroker(
                broker_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=each.rack,
                is_fenced=each.fenced,
            )
        )
    return found


HANDLER = Handler(
    api_key=60,
    name="DescribeCluster",
    versions=range(3),
    broker=run,
    controller=run_controller,
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-700", "KIP-919", "KIP-1073"),
)
