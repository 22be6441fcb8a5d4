"""DescribeQuorum: who decides about the metadata, and how far everybody has read it.

KIP: KIP-595, KIP-836 (times), KIP-853 (directories, endpoints).
Versions: 0-2.
Behaviour: the active controller is the leader and, since the metadata store is the commit point,
    the only voter; brokers that are no controllers are observers, at the offset of their last
    heartbeat. Any other topic or partition is UNKNOWN_TOPIC_OR_PARTITION.
Skipped: controllers in waiting, times of observers
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.api.handler import Handler, Request, forward
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.errors import ERRORS, ClientFault, ErrorCode
from anabranch.core.wire.messages.describe_quorum import (
    DescribedPartitionData,
    DescribedTopicData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    ReplicaState,
)

METADATA_TOPIC = "__cluster_metadata"
UNKNOWN = -1


def decide(controller: Controller, request: Request, now_ms: int) -> DescribeQuorumResponse:
    """Describe the only partition there is."""
    if not cluster_allowed(controller.authorizer, request, Operation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, ERRORS[code].sentence)
    body: DescribeQuorumRequest = request.body
    topics = [
        DescribedTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(controller, topic.topic_name, each.partition_index, now_ms)
                for each in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return DescribeQuorumResponse(topics=topics, nodes=[_node(controller)])


def _partition(
    controller: Controller, topic: str, index: int, now_ms: int
) -> DescribedPartitionData:
    if (topic, index) != (METADATA_TOPIC, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribedPartitionData(
            partition_index=index, error_code=code, error_message=ERRORS[code].sentence
        )
    end_offset = controller.log.end_offset
    leader = ReplicaState(
        replica_id=controller.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribedPartitionData(
        leader_id=controller.node_id,
        leader_epoch=controller.epoch,
        high_watermark=end_offset,
        current_voters=[leader],
        observers=_observers(controller),
    )


def _observers(controller: Controller) -> list[ReplicaState]:
    read = controller.sessions.metadata_offsets
    return [
        ReplicaState(replica_id=broker_id, log_end_offset=read.get(broker_id, UNKNOWN))
        for broker_id in sorted(controller.image.brokers)
        if broker_id != controller.node_id
    ]


def _node(controller: Controller) -> QuorumNode:
    names = controller.config["controller.listener.names"]
    host, port = controller.endpoint
    name = names[0] if isinstance(names, tuple) and names else "CONTROLLER"
    listener = QuorumListener(name=name, host=host, port=port)
    return QuorumNode(node_id=controller.node_id, listeners=[listener])


def refuse(_request: Request, code: ErrorCode, sentence: str) -> DescribeQuorumResponse:
    """The error for the request as a whole."""
    return DescribeQuorumResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=55,
    name="DescribeQuorum",
    versions=range(3),
    broker=forward,
    controller=decides(decide, refuse),
    kips=("KIP-595", "KIP-836", "KIP-853"),
    skipped=(
        "Controllers that wait to be active are not described.",
        "When an observer last fetched and last caught up is not told.",
    ),
)
