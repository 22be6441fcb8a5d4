"""Metadata: the brokers of the cluster, topics, their partitions and leaders.

KIP: KIP-4 (auto-creation is optional), KIP-430 (authorized operations), KIP-516 (topic ids).
Versions: 0-13.
Behaviour: no topics asked (null; empty in version 0) means all topics. Topics asked by id are not
    created. A topic that does not exist is created when `auto.create.topics.enable` and the request
    allow it: the answer says UNKNOWN_TOPIC_OR_PARTITION and the client asks again. The controller
    in the response is a broker: every broker forwards requests (KIP-590). A client without DESCRIBE
    on a topic does not learn whether it exists. If this broker's connection to a leader has just
    broken, the response waits for the controller's decision, half a second at most; a broker that
    is then fenced stays listed for one session (see `suspects`). For a diskless topic, a client
    that names its rack sees the replica there. A tagged field of Anabranch returns which topics are
    diskless, and their effective replication factor.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import (
    CLUSTER,
    NOT_ASKED,
    Operation,
    ResourceType,
    authorized_operations,
    cluster_allowed,
    topic_allowed,
)
from anabranch.core.api.context import METADATA, Broker
from anabranch.core.api.diskless_view import told_of_topics, view_of
from anabranch.core.api.groups import wish_topic
from anabranch.core.api.handler import Handler
from anabranch.core.api.metadata_view import listed_brokers, some_alive_broker
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC, offsets_topic
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC, transaction_topic
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import TopicImage
from anabranch.core.metadata.topic_names import is_internal, is_legal
from anabranch.core.outcome import Wait
from anabranch.core.request import Request
from anabranch.core.step import Wish
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from anabranch.core.wire.own_fields import has_own

_BY_ID_SINCE = 12
_MANAGED = -1
"""The replication factor that a topic may ask for which may become diskless."""
_CREATE_TIMEOUT_MS = 30_000

COORDINATORS_TOPICS = {OFFSETS_TOPIC: offsets_topic, TRANSACTION_TOPIC: transaction_topic}
"""Topics that are created in a shape of their own, whatever asks for them."""
"""How long the controller may take over an auto-created topic: Kafka's request timeout."""


def run(broker: Broker, request: Request, now_ms: int) -> MetadataResponse | Wait:
    """Describe the cluster as this client may see it, once it is known who leads."""
    verdict_ms = 0
    if broker.suspects.await_verdict(broker.steady_ms):
        verdict_ms = _verdict_ms(broker, request.body)
    if not verdict_ms:
        return _answer(broker, request)

    def poll(_now_ms: int, expired: bool) -> MetadataResponse | None:
        return (
            _answer(broker, request) if expired or not _verdict_ms(broker, request.body) else None
        )

    return Wait((METADATA,), now_ms + verdict_ms - broker.steady_ms, poll)


def _verdict_ms(broker: Broker, body: MetadataRequest) -> int:
    """Until when the answer waits, by the steady clock: 0 where nobody who leads is suspected."""
    image = broker.image
    if body.topics is None:
        topics = [*image.topics_by_id.values()]
    else:
        asked = (
            image.topic(each.name or "") or image.topic_by_id(each.topic_id) for each in body.topics
        )
        topics = [*{topic.topic_id: topic for topic in asked if topic is not None}.values()]
    leaders = {each.leader for topic in topics for each in topic.partitions.values()}
    for topic in topics:
        if is_diskless(image, topic.name):  # a client may be shown any of its replicas as leader
            leaders.update(*(each.replicas for each in topic.partitions.values()))
    now_ms, suspects = broker.steady_ms, broker.suspects
    return max((suspects.verdict_ms(image, each, now_ms) for each in leaders), default=0)


def _answer(broker: Broker, request: Request) -> MetadataResponse:
    body: MetadataRequest = request.body
    image, listener = broker.image, request.listener
    session_ms = broker.config.broker_session_timeout_ms
    stays_listed = partial(
        broker.suspects.stays_listed, now_ms=broker.steady_ms, session_ms=session_ms
    )
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id,
                host=each.endpoints[listener].host,
                port=each.endpoints[listener].port,
                rack=each.rack,
            )
            for each in listed_brokers(image, listener, broker.broker_id, stays_listed)
        ],
        cluster_id=broker.cluster_id,
        controller_id=some_alive_broker(image, broker.broker_id),
        topics=[],
    )
    if body.topics is None or (request.version == 0 and not body.topics):
        response.topics = _all_topics(broker, request)
    elif _is_invalid(body, request.version):
        invalid = ErrorCode.INVALID_REQUEST
        refused = [_refused(topic.name or "", topic.topic_id, invalid) for topic in body.topics]
        return MetadataResponse(brokers=[], topics=refused)
    elif any(topic.topic_id != ZERO_TOPIC_ID for topic in body.topics):
        wanted_ids = dict.fromkeys(topic.topic_id for topic in body.topics)
        wanted_ids.pop(ZERO_TOPIC_ID, None)
        response.topics = [_topic_by_id(broker, request, each) for each in wanted_ids]
    else:
        names = dict.fromkeys(topic.name or "" for topic in body.topics)
        response.topics = [_topic_by_name(broker, request, name) for name in names]
        _create_missing(broker, request, response)
    _add_operations(broker, request, response)
    if has_own(body):
        known = [topic.name for topic in response.topics if topic.name and not topic.error_code]
        response.unknown_tagged_fields = told_of_topics(broker, known)
    return response


def _is_invalid(body: MetadataRequest, version: int) -> bool:
    """Asking by id, or without a name, in a version that only pretends to know ids."""
    if version >= _BY_ID_SINCE or body.topics is None:
        return False
    return any(topic.name is None or topic.topic_id != ZERO_TOPIC_ID for topic in body.topics)


def _all_topics(broker: Broker, request: Request) -> list[MetadataResponseTopic]:
    topics = broker.image.topics_by_id.values()
    return [
        _described(broker, request, topic)
        for topic in sorted(topics, key=lambda topic: topic.name)
        if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, topic.name)
    ]


def _topic_by_id(broker: Broker, request: Request, topic_id: TopicId) -> MetadataResponseTopic:
    topic = broker.image.topic_by_id(topic_id)
    if topic is None:
        return _refused(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if not topic_allowed(broker.authorizer, request, Operation.DESCRIBE, topic.name):
        return _refused(None, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return _described(broker, request, topic)


def _topic_by_name(broker: Broker, request: Request, name: str) -> MetadataResponseTopic:
    if not topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
        return _refused(name, ZERO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.image.topic(name)
    if topic is not None:
        return _described(broker, request, topic)
    legal = is_legal(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    refused = _refused(name, ZERO_TOPIC_ID, error)
    refused.is_internal = is_internal(name)
    return refused


def _described(broker: Broker, request: Request, topic: TopicImage) -> MetadataResponseTopic:
    view = view_of(
        broker,
        request,
        topic,
        hides_dead_replicas=request.version == 0,
        names_missing_listeners=request.version >= 6,
    )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=broker.metadata_cache.partitions(broker.image, topic, view),
    )


def _refused(name: str | None, topic_id: TopicId, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def _create_missing(broker: Broker, request: Request, response: MetadataResponse) -> None:
    """Wish for the topics that do not exist, where configuration and request want that."""
    body: MetadataRequest = request.body
    if not (broker.config.auto_create_topics_enable and body.allow_auto_topic_creation):
        return
    may_create = cluster_allowed(broker.authorizer, request, Operation.CREATE)
    for topic in response.topics:
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
            continue
        if not may_create and not topic_allowed(
            broker.authorizer, request, Operation.CREATE, topic.name
        ):
            topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name not in broker.wished:
            _wish(broker, topic.name)


def _wish(broker: Broker, name: str) -> None:
    shape = COORDINATORS_TOPICS.get(name)
    if shape is not None:
        wish_topic(broker, shape(broker.image, broker.config))
        return
    diskless = broker.config.log_diskless_enable
    creatable = CreatableTopic(
        name=name,
        num_partitions=broker.config.num_partitions,
        replication_factor=_MANAGED if diskless else broker.config.default_replication_factor,
    )
    message = CreateTopicsRequest(topics=[creatable], timeout_ms=_CREATE_TIMEOUT_MS)
    broker.wished.add(name)
    broker.wishes.append(Wish(message, partial(broker.wished.discard, name)))


def _add_operations(broker: Broker, request: Request, response: MetadataResponse) -> None:
    """The authorized operations that versions 8 (cluster: 8-10) on may ask for."""
    body: MetadataRequest = request.body
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            authorized_operations(broker.authorizer, request, ResourceType.CLUSTER, CLUSTER)
            if cluster_allowed(broker.authorizer, request, Operation.DESCRIBE)
            else 0
        )
    if not body.include_topic_authorized_operations:
        return
    for topic in response.topics:
        topic.topic_authorized_operations = (
            authorized_operations(broker.authorizer, request, ResourceType.TOPIC, topic.name)
            if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and topic.name is not None
            else NOT_ASKED
        )


HANDLER = Handler(
    api_key=3,
    name="Metadata",
    versions=range(14),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(Operation.CREATE, ResourceType.TOPIC),
        Need(Operation.CREATE, ResourceType.CLUSTER),
        Need(Operation.DESCRIBE, ResourceType.CLUSTER),
    ),
    kips=("KIP-4", "KIP-430", "KIP-516"),
)
