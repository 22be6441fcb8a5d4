"""DescribeTopicPartitions: topics and their partitions, page by page.

KIP: KIP-966.
Versions: 0.
Behaviour: topics in order of name, all of them when none is named; a response holds at most
    `response_partition_limit` partitions (and `max.request.partition.size.limit`), and a cursor
    that says where the next one begins. With topics named, the cursor's must be among them. A topic
    that may not be described is refused without saying whether it exists. Observers are omitted,
    because they are never in sync. Diskless partitions look as in Metadata; a tagged field of
    Anabranch returns their placement.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import (
    Operation,
    ResourceType,
    authorized_operations,
    topic_allowed,
)
from anabranch.core.api.context import Broker
from anabranch.core.api.diskless_view import told_of_partitions, view_of
from anabranch.core.api.handler import Handler
from anabranch.core.api.metadata_view import (
    View,
    as_seen_near,
    awaited_replicas,
    offline_replicas,
    reachable_leader,
)
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import PartitionImage, TopicImage
from anabranch.core.metadata.topic_names import is_internal, is_legal
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from anabranch.core.wire.own_fields import has_own


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeTopicPartitionsResponse:
    """One page."""
    body: DescribeTopicPartitionsRequest = request.body
    try:
        names = _names(broker, body)
    except ApiError as error:
        return DescribeTopicPartitionsResponse(
            topics=[_refused(topic.name, error.code) for topic in body.topics]
        )
    limit = min(broker.config.max_request_partition_size_limit, body.response_partition_limit)
    allowed, refused = [], []
    for name in names:
        if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
            allowed.append(name)
        elif body.topics:
            refused.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    response = _page(broker, request, allowed, max(limit, 1))
    for topic in response.topics:
        topic.topic_authorized_operations = authorized_operations(
            broker.authorizer, request, ResourceType.TOPIC, topic.name or ""
        )
    if has_own(body):
        response.unknown_tagged_fields = told_of_partitions(broker, response)
    response.topics += refused
    return response


def _names(broker: Broker, body: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics from the cursor on, in order."""
    cursor = body.cursor
    first = "" if cursor is None else cursor.topic_name
    named = [topic.name for topic in body.topics] or list(broker.image.topic_ids_by_name)
    names = sorted({name for name in named if name >= first})
    if cursor is not None and body.topics and first not in names:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "DescribeTopicPartitionsRequest topic list should contain the cursor topic: " + first,
        )
    if cursor is not None and cursor.partition_index < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}",
        )
    return names


def _page(
    broker: Broker, request: Request, names: list[str], limit: int
) -> DescribeTopicPartitionsResponse:
    body: DescribeTopicPartitionsRequest = request.body
    response = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
    for name in names:
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = broker.image.topic(name)
        if topic is None:
            if body.topics:
                legal = is_legal(name)
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                code = unknown if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(_refused(name, code))
            continue
        start = 0
        if body.cursor is not None and body.cursor.topic_name == name:
            start = body.cursor.partition_index
        described = _topic(broker, request, topic, range(start, start + limit))
        response.topics.append(described)
        if start + limit < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + limit)
            break
        limit -= len(described.partitions)
    return response


def _topic(
    broker: Broker, request: Request, topic: TopicImage, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    view = view_of(broker, request, topic)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(broker, view, index, topic.partitions[index])
            for index in range(indexes.start, min(indexes.stop, len(topic.partitions)))
        ],
    )


def _partition(
    broker: Broker, view: View, index: int, state: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    if view.zone is not None:
        racks = broker.metadata_cache.racks(broker.image)
        state, _ = as_seen_near(broker.image, state, view, racks)
    leader, error = reachable_leader(broker.image, state, view)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=[*state.replicas, *awaited_replicas(state)],
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=offline_replicas(broker.image, state, view.listener),
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=is_internal(name), partitions=[]
    )


HANDLER = Handler(
    api_key=75,
    name="DescribeTopicPartitions",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.TOPIC),),
    kips=("KIP-966",),
)
