"""DeleteTopics: topics go with their partitions, records and settings.

KIP: KIP-4, KIP-516 (by id), KIP-590 (forwarded), KIP-599 (quotas: from version 5 on
    deletions over the quota are refused)
Versions: 1-6
Behaviour: a topic is named by its name, or from version 6 by its id, not by both; whatever is named
    twice is refused. With `delete.topic.enable=false` the whole request is refused. DELETE on the
    cluster is a right to delete every topic. Nobody needs a right to be told that there is no such
    id.
Skipped: nothing
"""

from __future__ import annotations

from collections import Counter

from anabranch.core.access.authorize import (
    Operation,
    ResourceType,
    cluster_allowed,
    topic_allowed,
)
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.topics.topics import delete_topic
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from anabranch.core.wire.metadata_records import RemoveTopicRecord

TOPIC_IDS_SINCE = 6
STRICT_QUOTA_SINCE = 5
DELETION_DISABLED_SINCE = 3


def decide(controller: Controller, request: Request, now_ms: int) -> Result[DeleteTopicsResponse]:
    """Look each topic up and remove those that are found and allowed."""
    if not controller.config.delete_topic_enable:
        old = request.version < DELETION_DISABLED_SINCE
        code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
        raise ClientFault(code, "Topic deletion is disabled.")
    topics = named_topics(request.body, request.version)
    names = Counter(topic.name for topic in topics if topic.name is not None)
    ids = Counter(topic.topic_id for topic in topics if topic.topic_id != ZERO_TOPIC_ID)
    quota = controller.mutation(request, now_ms, strict_since=STRICT_QUOTA_SINCE)
    records: list[RemoveTopicRecord] = []
    results: list[DeletableTopicResult] = []
    reasons: list[Reason] = []
    answered: set[tuple[str | None, bytes]] = set()
    for topic in topics:
        if (topic.name, topic.topic_id) in answered:
            continue
        answered.add((topic.name, topic.topic_id))
        try:
            _check_naming(topic, names, ids)
            record, result = _remove(controller, request, topic, {r.topic_id for r in records})
            quota.take(len(controller.image.topics_by_id[record.topic_id].partitions))
        except ApiError as fault:
            results.append(_failed(topic, fault.code, fault.message))
            continue
        records.append(record)
        results.append(result)
        reasons.append(Reason(Code.TOPIC_DELETED, f"topic {result.name} deleted by request"))
    return Result(tuple(records), DeleteTopicsResponse(quota.rest_ms, results), tuple(reasons))


def named_topics(body: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    """The topics of a request in the newest version's form."""
    if version >= TOPIC_IDS_SINCE:
        return body.topics
    return [DeleteTopicState(name=name) for name in body.topic_names]


def _check_naming(topic: DeleteTopicState, names: Counter[str], ids: Counter[TopicId]) -> None:
    sentence = None
    if topic.name is None and topic.topic_id == ZERO_TOPIC_ID:
        sentence = "Neither topic name nor id were specified."
    elif topic.name is not None and topic.topic_id != ZERO_TOPIC_ID:
        sentence = "You may not specify both topic name and topic id."
    elif topic.name is not None and names[topic.name] > 1:
        sentence = "Duplicate topic name."
    elif topic.name is None and ids[topic.topic_id] > 1:
        sentence = "Duplicate topic id."
    if sentence is not None:
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)


def _remove(
    controller: Controller, request: Request, wanted: DeleteTopicState, removed: set[bytes]
) -> tuple[RemoveTopicRecord, DeletableTopicResult]:
    image = controller.image
    by_name = wanted.name is not None
    found = image.topic(wanted.name or "") if by_name else image.topic_by_id(wanted.topic_id)
    if found is None and not by_name:
        raise ClientFault(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    name = found.name if found is not None else wanted.name or ""
    if not _may_delete(controller, request, name):
        described = topic_allowed(controller.authorizer, request, Operation.DESCRIBE, name)
        if by_name or described:
            raise ClientFault(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        raise ClientFault(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if found is None:
        raise ClientFault(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if found.topic_id in removed:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was given too."
        )
    result = DeletableTopicResult(name=found.name, topic_id=found.topic_id)
    return delete_topic(image, found), result


def _may_delete(controller: Controller, request: Request, name: str) -> bool:
    authorizer = controller.authorizer
    return cluster_allowed(authorizer, request, Operation.DELETE) or topic_allowed(
        authorizer, request, Operation.DELETE, name
    )


def _failed(topic: DeleteTopicState, code: ErrorCode, sentence: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=sentence
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> DeleteTopicsResponse:
    """The same error for every topic of the request."""
    topics = named_topics(request.body, request.version)
    return DeleteTopicsResponse(responses=[_failed(topic, code, sentence) for topic in topics])


HANDLER = Handler(
    api_key=20,
    name="DeleteTopics",
    versions=range(1, 7),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(
        Need(Operation.DELETE, ResourceType.CLUSTER),
        Need(Operation.DELETE, ResourceType.TOPIC),
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    charge=Charge.MUTATION,
    kips=("KIP-4", "KIP-516", "KIP-590", "KIP-599"),
)
