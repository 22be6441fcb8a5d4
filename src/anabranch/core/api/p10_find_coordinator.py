"""FindCoordinator: which broker coordinates a group, or a transactional id.

KIP: KIP-699 (many keys at once).
Versions: 0-6.
Behaviour: needs DESCRIBE on each group or transactional id. The coordinator is the leader of its
    partition of `__consumer_offsets`, or of `__transaction_state`. When that topic does not exist
    yet it is asked for, and the answer waits a moment for it, where Kafka answers
    COORDINATOR_NOT_AVAILABLE at once; so the first client need not ask twice. Share groups have no
    coordinator: UNSUPPORTED_VERSION.
Skipped: coordinators of share groups (key type 2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_created
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import transactional_id_allowed
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets_topic as groups
from anabranch.core.coordination.transactions import topic as transactions
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.wire.messages.create_topics import CreatableTopic

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS_SINCE = 4


class Kind(NamedTuple):
    """One type of coordinator: the topic it keeps, and who may ask for it."""

    topic: str
    shape: Callable[[MetadataImage, BrokerConfig], CreatableTopic]
    partition_of: Callable[[str, MetadataImage, BrokerConfig], int]
    allowed: Callable[[Broker, Request, Operation, str], bool]
    refusal: ErrorCode


KINDS = {
    GROUP: Kind(
        groups.OFFSETS_TOPIC,
        groups.offsets_topic,
        groups.partition_of,
        group_allowed,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    TRANSACTION: Kind(
        transactions.TRANSACTION_TOPIC,
        transactions.transaction_topic,
        transactions.partition_of,
        transactional_id_allowed,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The coordinators, or a wait for the topic in which they are found."""
    body: FindCoordinatorRequest = request.body
    keys = body.coordinator_keys if request.version >= MANY_KEYS_SINCE else [body.key]
    look = partial(_look, broker, request, keys)
    coordinators = look()
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    kind = KINDS.get(body.key_type)
    if kind is None or all(each.error_code != missing for each in coordinators):
        return _response(request, coordinators)

    def poll(_now_ms: int, expired: bool) -> FindCoordinatorResponse | None:
        found = look()
        if expired or all(each.error_code != missing for each in found):
            return _response(request, found)
        return None

    places = {
        TopicPartition(kind.topic, kind.partition_of(key, broker.image, broker.config))
        for key in keys
    }
    topic = kind.shape(broker.image, broker.config)
    return when_created(broker, topic, now_ms, poll, places)


def _look(broker: Broker, request: Request, keys: list[str]) -> list[Coordinator]:
    return [_coordinator(broker, request, key) for key in keys]


def _coordinator(broker: Broker, request: Request, key: str) -> Coordinator:
    body: FindCoordinatorRequest = request.body
    kind = KINDS.get(body.key_type)
    if body.key_type == SHARE:
        sentence = "Share groups are not served by this broker."
        return _refused(key, ErrorCode.UNSUPPORTED_VERSION, sentence)
    if kind is None:
        sentence = f"There is no coordinator of type {body.key_type}."
        return _refused(key, ErrorCode.INVALID_REQUEST, sentence)
    if not kind.allowed(broker, request, Operation.DESCRIBE, key):
        return _refused(key, kind.refusal)
    index = kind.partition_of(key, broker.image, broker.config)
    state = broker.image.partition(kind.topic, index)
    leader = None if state is None else broker.image.brokers.get(state.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(request.listener)
    if state is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if state.leader == broker.broker_id and broker.partitions.get(kind.topic, index) is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # its log is being opened
    return Coordinator(key=key, node_id=state.leader, host=endpoint.host, port=endpoint.port)


def _refused(key: str, code: ErrorCode, sentence: str | None = None) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=sentence
    )


def _response(request: Request, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if request.version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    found = only.error_code == ErrorCode.NONE
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message="NONE" if found else only.error_message,  # as Kafka spells no error
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


HANDLER = Handler(
    api_key=10,
    name="FindCoordinator",
    versions=range(7),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.GROUP),
        Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    ),
    kips=("KIP-699",),
    skipped=("Share groups have no coordinator: UNSUPPORTED_VERSION.",),
)
