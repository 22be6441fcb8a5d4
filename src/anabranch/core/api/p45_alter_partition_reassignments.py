"""AlterPartitionReassignments: replicas move to other brokers, or a move is cancelled.

KIP: KIP-455, KIP-590 (forwarded), KIP-860 (the replication factor may be held).
Versions: 0-1.
Behaviour: needs ALTER on the cluster. Each partition has its own error; what can begin begins, all
    in one batch. A null list of replicas cancels. With the tagged field of
    `core/wire/own_fields.py` the request is about a plan of moves instead, done or refused whole.
Skipped: nothing
"""

from __future__ import annotations

from itertools import chain

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.moves.plan_states import told
from anabranch.core.controller.moves.plans import decide_plan
from anabranch.core.controller.moves.requests import move
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.core.wire.own_fields import OWN_TAG, PlanAsked, tagged, untagged


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[AlterPartitionReassignmentsResponse]:
    """Decide each partition by itself."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    body: AlterPartitionReassignmentsRequest = request.body
    consequences = Consequences(controller.state, controller.config, controller.sessions.suspects)
    if OWN_TAG in (body.unknown_tagged_fields or {}):
        return _about_a_plan(controller, consequences, body)
    records: dict[tuple[str, int], tuple[MetadataRecord, ...]] = {}
    reasons: list[Reason] = []
    response = _response(body)
    for topic in body.topics:
        answers: list[ReassignablePartitionResponse] = []
        for asked in topic.partitions:
            index = asked.partition_index
            answer = ReassignablePartitionResponse(partition_index=index, error_message=None)
            answers.append(answer)
            try:
                if (topic.name, index) in records:
                    raise ClientFault(
                        ErrorCode.INVALID_REQUEST, f"Partition {topic.name}-{index} is named twice."
                    )
                moved = move(
                    consequences,
                    topic.name,
                    index,
                    asked.replicas,
                    may_change_factor=body.allow_replication_factor_change,
                )
            except ClientFault as fault:
                answer.error_code, answer.error_message = fault.code, fault.message
                continue
            records[topic.name, index] = moved.records
            reasons += moved.reasons
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    made = tuple(chain.from_iterable(records.values()))
    return Result(made, response, tuple(reasons))


def _about_a_plan(
    controller: Controller, consequences: Consequences, body: AlterPartitionReassignmentsRequest
) -> Result[AlterPartitionReassignmentsResponse]:
    asked = untagged(PlanAsked, body.unknown_tagged_fields)
    result = decide_plan(consequences, controller.cluster_id, asked)
    response = _response(body)
    response.unknown_tagged_fields = tagged(told(controller.state, result.response))
    return Result(result.records, response, result.reasons)


def _response(body: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change, error_message=None
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> AlterPartitionReassignmentsResponse:
    """The error for the whole request, and again for each partition."""
    body: AlterPartitionReassignmentsRequest = request.body
    response = _response(body)
    response.error_code, response.error_message = code, sentence
    response.responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=sentence
                )
                for each in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return response


HANDLER = Handler(
    api_key=45,
    name="AlterPartitionReassignments",
    versions=range(2),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-455", "KIP-590", "KIP-860"),
)
