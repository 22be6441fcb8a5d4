"""AddOffsetsToTxn: a transaction will commit offsets of a group.

KIP: KIP-98
Versions: 0-4
Behaviour: needs WRITE on the transactional id and READ on the group. The group's partition of
    `__consumer_offsets` joins the transaction, so that it gets a marker as well. While the
    transaction before is being ended it waits, as AddPartitionsToTxn does. When that topic does not
    exist yet it is asked for, as in FindCoordinator: most clients look for the group's coordinator
    only after this answer. Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_created
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import (
    fenced_code,
    note_refusal,
    transactional_id_allowed,
    when_free,
)
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups.offsets_topic import (
    OFFSETS_TOPIC,
    offsets_topic,
    partition_of,
)
from anabranch.core.coordination.transactions.coordinator import Decision
from anabranch.core.coordination.transactions.rules import Producer
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FENCED_SINCE = 2


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """NONE when the group's partition has joined, or a wait for that."""
    body: AddOffsetsToTxnRequest = request.body
    name, group_id = body.transactional_id, body.group_id
    if not transactional_id_allowed(broker, request, Operation.WRITE, name):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not group_allowed(broker, request, Operation.READ, group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    index = partition_of(group_id, broker.image, broker.config)
    if broker.image.partition(OFFSETS_TOPIC, index) is None:
        return _when_created(broker, request, now_ms)

    def tell(decision: Decision) -> AddOffsetsToTxnResponse:
        note_refusal(broker, request, "AddOffsetsToTxn", decision.code, name)
        code = fenced_code(decision.code, request.version, since=FENCED_SINCE)
        return AddOffsetsToTxnResponse(error_code=code)

    ask = partial(
        broker.transactions.add,
        name,
        Producer(body.producer_id, body.producer_epoch),
        frozenset({TopicPartition(OFFSETS_TOPIC, index)}),
        0,
    )
    return when_free(broker, name, now_ms, ask, tell)


def _when_created(broker: Broker, request: Request, now_ms: int) -> Wait:
    """The answer once the group's partition exists. What the client sends next waits as well: it
    may be the end of this transaction."""
    group_id = request.body.group_id

    def poll(now_ms: int, expired: bool) -> Outcome | None:
        index = partition_of(group_id, broker.image, broker.config)  # by the topic that was created
        if broker.image.partition(OFFSETS_TOPIC, index) is not None:
            return run(broker, request, now_ms)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return AddOffsetsToTxnResponse(error_code=code) if expired else None

    topic = offsets_topic(broker.image, broker.config)
    return when_created(broker, topic, now_ms, poll, holds_up=True)


HANDLER = Handler(
    api_key=25,
    name="AddOffsetsToTxn",
    versions=range(5),
    broker=run,
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.READ, ResourceType.GROUP),
    ),
    kips=("KIP-98",),
)
