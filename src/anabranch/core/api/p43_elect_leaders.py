"""ElectLeaders: elect preferred leaders, or any replica if a partition has no leader.

KIP: KIP-183 (preferred), KIP-460 (unclean), KIP-590 (forwarded).
Versions: 0-2.
Behaviour: needs ALTER on the cluster. Each partition has its own error; with no list every
    partition is looked at, and those that need no election are left out of the answer.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.partitions.elect_leaders import ElectionType, elect, is_not_needed
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage, TopicImage
from anabranch.core.request import Request
from anabranch.core.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from anabranch.core.wire.metadata_records import MetadataRecord


def decide(controller: Controller, request: Request, _now_ms: int) -> Result[ElectLeadersResponse]:
    """Decide each partition by itself."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    body: ElectLeadersRequest = request.body
    try:
        kind = ElectionType(body.election_type)
    except ValueError:
        sentence = f"Invalid election type {body.election_type}."
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence) from None
    consequences = Consequences(controller.state, controller.config, controller.sessions.suspects)
    records: list[MetadataRecord] = []
    reasons: list[Reason] = []
    results: dict[str, ReplicaElectionResult] = {}
    for name, topic, index in _asked(controller.image, body, kind):
        result = PartitionResult(partition_id=index, error_message=None)
        try:
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise ClientFault(code, f"No such topic as {name}")
            record, reason = elect(consequences, topic, index, kind)
        except ClientFault as fault:
            result.error_code, result.error_message = fault.code, fault.message
        else:
            records.append(record)
            reasons.append(reason)
        found = results.setdefault(name, ReplicaElectionResult(topic=name))
        found.partition_result.append(result)
    response = ElectLeadersResponse(replica_election_results=list(results.values()))
    return Result(tuple(records), response, tuple(reasons), atomic=False)


def _asked(
    image: MetadataImage, body: ElectLeadersRequest, kind: ElectionType
) -> Iterator[tuple[str, TopicImage | None, int]]:
    if body.topic_partitions is not None:
        for asked in body.topic_partitions:
            for index in asked.partitions:
                yield asked.topic, image.topic(asked.topic), index
        return
    for topic in sorted(image.topics_by_id.values(), key=lambda each: each.name):
        for index, partition in sorted(topic.partitions.items()):
            if not is_not_needed(partition, kind):
                yield topic.name, topic, index


def refuse(request: Request, code: ErrorCode, sentence: str) -> ElectLeadersResponse:
    """The same error for the answer and for every partition that was named."""
    named = request.body.topic_partitions or ()
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=sentence)
                    for index in asked.partitions
                ],
            )
            for asked in named
        ],
    )


HANDLER = Handler(
    api_key=43,
    name="ElectLeaders",
    versions=range(3),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-183", "KIP-460", "KIP-590"),
)
