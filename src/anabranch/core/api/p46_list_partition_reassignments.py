"""ListPartitionReassignments: the partitions whose replicas are moving.

KIP: KIP-455, KIP-590 (forwarded).
Versions: 0.
Behaviour: needs DESCRIBE on the cluster. Only partitions with a move in progress are listed;
    requested partitions that are not moving, or do not exist, are omitted. A tagged field
    (`core/wire/own_fields.py`) returns the newest plan of moves.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.moves.plan_states import told
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from anabranch.core.wire.own_fields import OWN_TAG, tagged


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[ListPartitionReassignmentsResponse]:
    """Tell of the moves that were asked for, or of all."""
    if not cluster_allowed(controller.authorizer, request, Operation.DESCRIBE):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    state = controller.state
    topics: dict[str, OngoingTopicReassignment] = {}
    for key in _asked(state, request.body):
        if key not in state.moving:
            continue
        name, partition = state.topic_name(key), state.partition(key)
        found = topics.setdefault(name, OngoingTopicReassignment(name=name))
        found.partitions.append(
            OngoingPartitionReassignment(
                partition_index=key[1],
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    response = ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
    if OWN_TAG in (request.body.unknown_tagged_fields or {}):
        response.unknown_tagged_fields = tagged(told(state, state.image.plan))
    return Result((), response)


def _asked(state: ClusterState, body: ListPartitionReassignmentsRequest) -> Iterator[PartitionKey]:
    if body.topics is None:
        yield from sorted(state.moving, key=lambda key: (state.topic_name(key), key[1]))
        return
    for asked in body.topics:
        topic = state.image.topic(asked.name)
        if topic is not None:
            yield from ((topic.topic_id, index) for index in dict.fromkeys(asked.partition_indexes))


def refuse(_request: Request, code: ErrorCode, sentence: str) -> ListPartitionReassignmentsResponse:
    """The error for the whole request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=46,
    name="ListPartitionReassignments",
    versions=range(1),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
    kips=("KIP-455", "KIP-590"),
)
