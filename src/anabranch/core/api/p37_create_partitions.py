"""CreatePartitions: more partitions for a topic.

KIP: KIP-195, KIP-590 (forwarded), KIP-599 (quotas: from version 3 on partitions over the
    quota are refused)
Versions: 0-3
Behaviour: `count` is the new total. Replicas are placed as for a new topic with the replication
    factor of partition 0, or taken from the request, which must then give a list a new partition.
    Internal topics do not grow, where only Kafka's own tool refuses it (INVALID_REQUEST): their
    groups and transactional ids would be looked for in other partitions.
Skipped: nothing
"""

from __future__ import annotations

from collections import Counter

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.topics.topics import create_partitions
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from anabranch.core.wire.metadata_records import MetadataRecord

STRICT_QUOTA_SINCE = 3


def decide(
    controller: Controller, request: Request, now_ms: int
) -> Result[CreatePartitionsResponse]:
    """Plan each topic by itself."""
    counts = Counter(topic.name for topic in request.body.topics)
    records: list[MetadataRecord] = []
    reasons: list[Reason] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    quota = controller.mutation(request, now_ms, strict_since=STRICT_QUOTA_SINCE)
    placing = controller.planner.placing()
    for topic in request.body.topics:
        try:
            if counts[topic.name] > 1:
                raise ClientFault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not topic_allowed(controller.authorizer, request, Operation.ALTER, topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                raise ClientFault(code, "Topic authorization failed.")
            made = create_partitions(controller.planner, placing, topic)
            quota.take(len(made.partitions))
        except ApiError as fault:
            results[topic.name] = _failed(topic.name, fault.code, fault.message)
            continue
        records += [*made.partitions, *made.more]
        results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        more = number_of(len(made.partitions), "partition")
        sentence = f"topic {topic.name} grows by {more} to {topic.count}"
        reasons.append(Reason(Code.PARTITIONS_ADDED, sentence))
    response = CreatePartitionsResponse(quota.rest_ms, list(results.values()))
    if request.body.validate_only:
        return Result((), response)
    return Result(tuple(records), response, tuple(reasons))


def _failed(name: str, code: ErrorCode, sentence: str) -> CreatePartitionsTopicResult:
    said = None if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else sentence
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=said)


def refuse(request: Request, code: ErrorCode, sentence: str) -> CreatePartitionsResponse:
    """The same error for every topic of the request."""
    topics = request.body.topics
    return CreatePartitionsResponse(
        results=[_failed(topic.name, code, sentence) for topic in topics]
    )


HANDLER = Handler(
    api_key=37,
    name="CreatePartitions",
    versions=range(4),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER, ResourceType.TOPIC),),
    charge=Charge.MUTATION,
    kips=("KIP-195", "KIP-590", "KIP-599"),
)
