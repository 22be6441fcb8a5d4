"""CreateTopics: new topics with their partitions and settings.

KIP: KIP-4, KIP-525 (settings in the answer), KIP-590 (forwarded), KIP-599 (quotas: from version 6
    on topics over the quota are refused)
Versions: 2-7
Behaviour: each topic succeeds or fails by itself, in Kafka's order of checks. With `validate_only`
    everything is checked and nothing is written. The answer follows the commit of the records, so
    a metadata answer may be a moment older than it.
Skipped: create.topic.policy.class.name
"""

from __future__ import annotations

from collections import Counter

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed, topic_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.controller.topics.topics import NewTopic, create_topics, creation_reason
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.types import CLUSTER_METADATA_TOPIC
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from anabranch.core.wire.own_fields import ReplicaMap, ReplicaMaps, ReplicaRow, has_own, tagged

CONFIGS_SINCE = 5
STRICT_QUOTA_SINCE = 6


def decide(controller: Controller, request: Request, now_ms: int) -> Result[CreateTopicsResponse]:
    """Plan the topics and say what becomes of each."""
    body: CreateTopicsRequest = request.body
    refused, wanted = _screen(controller, request, body.topics)
    quota = controller.mutation(request, now_ms, strict_since=STRICT_QUOTA_SINCE)
    outcomes = create_topics(controller.planner, wanted, quota.take)
    results = dict(refused)
    created: dict[str, NewTopic] = {}
    for topic in wanted:
        outcome = outcomes[topic.name]
        if isinstance(outcome, NewTopic):
            created[topic.name] = outcome
            results[topic.name] = _created(controller, request, topic.name, outcome)
        else:
            results[topic.name] = _failed(topic.name, outcome.code, outcome.message)
    response = CreateTopicsResponse(quota.rest_ms, list(results.values()))
    if has_own(body):
        response.unknown_tagged_fields = tagged(_maps(created))
    if body.validate_only:
        return Result((), response)
    records = tuple(record for topic in created.values() for record in topic.records)
    reasons = tuple(creation_reason(name, topic) for name, topic in created.items())
    return Result(records, response, reasons)


def _screen(
    controller: Controller, request: Request, topics: list[CreatableTopic]
) -> tuple[dict[str, CreatableTopicResult], list[CreatableTopic]]:
    """Names that are refused before planning, and the topics that remain."""
    counts = Counter(topic.name for topic in topics)
    may_create_any = cluster_allowed(controller.authorizer, request, Operation.CREATE)
    refused: dict[str, CreatableTopicResult] = {}
    wanted: list[CreatableTopic] = []
    for topic in topics:
        name = topic.name
        if counts[name] > 1:
            refused[name] = _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == CLUSTER_METADATA_TOPIC:
            sentence = f"Creation of internal topic {name} is prohibited."
            refused[name] = _failed(name, ErrorCode.INVALID_REQUEST, sentence)
        elif not may_create_any and not topic_allowed(
            controller.authorizer, request, Operation.CREATE, name
        ):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused[name] = _failed(name, code, "Authorization failed.")
        else:
            wanted.append(topic)
    return refused, wanted


def _created(
    controller: Controller, request: Request, name: str, topic: NewTopic
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name, topic_id=topic.topic_id, error_message=None)
    if request.version < CONFIGS_SINCE:
        return result
    if not topic_allowed(controller.authorizer, request, Operation.DESCRIBE_CONFIGS, name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.configs = None
        return result
    result.num_partitions = len(topic.partitions)
    result.replication_factor = topic.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=each.config_source,
            is_sensitive=each.is_sensitive,
        )
        for each in controller.topic_configs(dict(topic.configs))
    ]
    return result


def _maps(created: dict[str, NewTopic]) -> ReplicaMaps:
    """Where the replicas of each topic are placed."""
    return ReplicaMaps(
        topics=[
            ReplicaMap(
                topic=name,
                partitions=[ReplicaRow(brokers=list(each.replicas)) for each in topic.partitions],
            )
            for name, topic in created.items()
        ]
    )


def _failed(name: str, code: ErrorCode, sentence: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=sentence)


def refuse(request: Request, code: ErrorCode, sentence: str) -> CreateTopicsResponse:
    """The same error for every topic of the request."""
    names = dict.fromkeys(topic.name for topic in request.body.topics)
    return CreateTopicsResponse(topics=[_failed(name, code, sentence) for name in names])


HANDLER = Handler(
    api_key=19,
    name="CreateTopics",
    versions=range(2, 8),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(
        Need(Operation.CREATE, ResourceType.CLUSTER),
        Need(Operation.CREATE, ResourceType.TOPIC),
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    charge=Charge.MUTATION,
    kips=("KIP-4", "KIP-525", "KIP-590", "KIP-599"),
    skipped=("The policy class create.topic.policy.class.name has no effect.",),
)
