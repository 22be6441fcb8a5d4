"""FindCoordinator: which broker coordinates a group.

KIP: KIP-699 (many keys at once).
Versions: 0-6.
Behaviour: needs DESCRIBE on each group. The coordinator is the leader of the group's partition of
    `__consumer_offsets`. When that topic does not exist yet it is asked for, and the answer waits a
    moment for it, where Kafka answers COORDINATOR_NOT_AVAILABLE at once; so a first client need not
    ask twice. Transactions and share groups have no coordinator here: UNSUPPORTED_VERSION, so that
    a producer is told at once.
Skipped: coordinators of transactions (key type 1) and of share groups (key type 2).
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import METADATA, Broker
from anabranch.core.api.groups import group_allowed, wish_offsets_topic
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS_SINCE = 4
CREATION_WAIT_MS = 1_000
"""How long the answer waits for `__consumer_offsets` before the client is asked to come again."""

NAMES = {TRANSACTION: "Transactions", SHARE: "Share groups"}


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The coordinators, or a wait for the topic in which they are found."""
    body: FindCoordinatorRequest = request.body
    keys = body.coordinator_keys if request.version >= MANY_KEYS_SINCE else [body.key]
    look = partial(_look, broker, request, keys)
    coordinators = look()
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if body.key_type != GROUP or all(each.error_code != missing for each in coordinators):
        return _response(request, coordinators)
    if broker.image.topic(OFFSETS_TOPIC) is None:
        wish_offsets_topic(broker)

    def poll(_now_ms: int, expired: bool) -> FindCoordinatorResponse | None:
        found = look()
        if expired or all(each.error_code != missing for each in found):
            return _response(request, found)
        return None

    places = {
        TopicPartition(OFFSETS_TOPIC, partition_of(key, broker.image, broker.config))
        for key in keys
    }
    return Wait((METADATA, *places), now_ms + CREATION_WAIT_MS, poll)


def _look(broker: Broker, request: Request, keys: list[str]) -> list[Coordinator]:
    return [_coordinator(broker, request, key) for key in keys]


def _coordinator(broker: Broker, request: Request, key: str) -> Coordinator:
    body: FindCoordinatorRequest = request.body
    if body.key_type in NAMES:
        sentence = f"{NAMES[body.key_type]} are not served by this broker."
        return _refused(key, ErrorCode.UNSUPPORTED_VERSION, sentence)
    if body.key_type != GROUP:
        sentence = f"There is no coordinator of type {body.key_type}."
        return _refused(key, ErrorCode.INVALID_REQUEST, sentence)
    if not group_allowed(broker, request, Operation.DESCRIBE, key):
        return _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    index = partition_of(key, broker.image, broker.config)
    state = broker.image.partition(OFFSETS_TOPIC, index)
    leader = None if state is None else broker.image.brokers.get(state.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(request.listener)
    if state is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if state.leader == broker.broker_id and broker.partitions.get(OFFSETS_TOPIC, index) is None:
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
    needs=(Need(Operation.DESCRIBE, ResourceType.GROUP),),
    kips=("KIP-699",),
    skipped=("Transactions and share groups have no coordinator: UNSUPPORTED_VERSION.",),
)
