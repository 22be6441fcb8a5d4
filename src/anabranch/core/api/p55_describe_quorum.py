"""DescribeQuorum: the active controller, and the metadata offset of each node.

KIP: KIP-595, KIP-836 (times), KIP-853 (directories, endpoints).
Versions: 0-2.
Behaviour: the active controller is the leader; every registered controller is listed as a voter,
    because any of them may become active, although only the metadata store commits. Broker-only
    nodes are observers. Offsets are those of the last fetch or heartbeat. Any other topic or
    partition is UNKNOWN_TOPIC_OR_PARTITION. A tagged field (`core/wire/own_fields.py`) returns the
    newest reasons.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.errors import ERRORS, ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.types import CLUSTER_METADATA_TOPIC
from anabranch.core.wire.messages.describe_quorum import (
    DescribedPartitionData,
    DescribedTopicData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    ReplicaState,
)
from anabranch.core.wire.own_fields import OWN_TAG, SaidReasons, tagged

UNKNOWN = -1


def decide(controller: Controller, request: Request, _now_ms: int) -> DescribeQuorumResponse:
    """Describe the only partition there is."""
    if not cluster_allowed(controller.authorizer, request, Operation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, ERRORS[code].sentence)
    body: DescribeQuorumRequest = request.body
    topics = [
        DescribedTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(controller, topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    response = DescribeQuorumResponse(topics=topics, nodes=_nodes(controller))
    if OWN_TAG in (body.unknown_tagged_fields or {}):
        told = SaidReasons(reasons=controller.history.newest())
        response.unknown_tagged_fields = tagged(told)
    return response


def _partition(controller: Controller, topic: str, index: int) -> DescribedPartitionData:
    if (topic, index) != (CLUSTER_METADATA_TOPIC, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribedPartitionData(
            partition_index=index, error_code=code, error_message=ERRORS[code].sentence
        )
    end_offset = controller.log.end_offset
    leader = ReplicaState(
        replica_id=controller.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=controller.wall_ms,
        last_caught_up_timestamp=controller.wall_ms,
    )
    return DescribedPartitionData(
        leader_id=controller.node_id,
        leader_epoch=controller.epoch,
        high_watermark=end_offset,
        current_voters=[leader, *_replicas(controller, _waiting(controller))],
        observers=_replicas(controller, _observers(controller)),
    )


def _waiting(controller: Controller) -> list[int]:
    return sorted(set(controller.image.controllers) - {controller.node_id})


def _observers(controller: Controller) -> list[int]:
    known = {controller.node_id, *controller.image.controllers}
    return sorted(set(controller.image.brokers) - known)


def _replicas(controller: Controller, nodes: list[int]) -> list[ReplicaState]:
    return [_replica(controller, each) for each in nodes]


def _replica(controller: Controller, node_id: int) -> ReplicaState:
    read = controller.read_to.get(node_id)
    if read is None:
        heard = controller.sessions.metadata_offsets.get(node_id, UNKNOWN)
        return ReplicaState(replica_id=node_id, log_end_offset=heard)
    return ReplicaState(
        replica_id=node_id,
        log_end_offset=read.end_offset,
        last_fetch_timestamp=read.fetched_ms,
        last_caught_up_timestamp=read.caught_up_ms,
    )


def _nodes(controller: Controller) -> list[QuorumNode]:
    """Every controller with its listeners; the active one wherever it knows itself to be."""
    listeners = {
        controller_id: [
            QuorumListener(name=name, host=each.host, port=each.port)
            for name, each in sorted(registered.endpoints.items())
        ]
        for controller_id, registered in controller.image.controllers.items()
    }
    names = controller.config["controller.listener.names"]
    name = names[0] if isinstance(names, tuple) and names else "CONTROLLER"
    host, port = controller.endpoint
    listeners[controller.node_id] = [QuorumListener(name=name, host=host, port=port)]
    return [QuorumNode(node_id=each, listeners=found) for each, found in sorted(listeners.items())]


def refuse(_request: Request, code: ErrorCode, sentence: str) -> DescribeQuorumResponse:
    """The error for the request as a whole."""
    return DescribeQuorumResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=55,
    name="DescribeQuorum",
    versions=range(3),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-595", "KIP-836", "KIP-853"),
)
