"""InitProducerId: an id under which a producer's batches are recognised when they come again.

KIP: KIP-98 (idempotent producers, transactions), KIP-360 (epoch bumps), KIP-679, KIP-890.
Versions: 0-5.
Behaviour: without a transactional id every request gets a new id with epoch 0, from a block that
    the controller gave to this broker; when the next block is late, COORDINATOR_LOAD_IN_PROGRESS.
    With one, its coordinator gives the id's producer the next epoch, so that any other that has
    the id is fenced; a transaction under way is aborted first, and the client comes again
    (CONCURRENT_TRANSACTIONS). Needs WRITE on the transactional id, or IDEMPOTENT_WRITE on the
    cluster or WRITE on any topic (KIP-679). Before version 4 PRODUCER_FENCED is
    INVALID_PRODUCER_EPOCH.
Skipped: version 6, with which an outside coordinator decides (KIP-939): Kafka 4.1 serves it only
    where `unstable.api.versions.enable` is set.
"""

from __future__ import annotations

from functools import partial

from anabranch.core.access.authorize import (
    Authorizer,
    Operation,
    ResourceType,
    cluster_allowed,
)
from anabranch.core.api.context import PRODUCER_IDS, Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import (
    PRODUCER_ID_WAIT_MS,
    fenced_code,
    note_refusal,
    transactional_id_allowed,
    when_decided,
)
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.transactions.coordinator import Decision
from anabranch.core.coordination.transactions.rules import Producer
from anabranch.core.coordination.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

FENCED_SINCE = 4


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """A new producer id, or the error, or a wait for the next block of ids or for a record."""
    refusal = _refusal(broker, request)
    if refusal is not None:
        return _refused(refusal)
    if request.body.transactional_id is not None:
        return _transactional(broker, request, request.body.transactional_id, now_ms)
    given = _give(broker)
    if given is not None:
        return given

    def poll(_now_ms: int, expired: bool) -> InitProducerIdResponse | None:
        given = _give(broker)
        if given is None and expired:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return given

    return Wait((PRODUCER_IDS,), now_ms + PRODUCER_ID_WAIT_MS, poll)


def _transactional(broker: Broker, request: Request, name: str, now_ms: int) -> Outcome:
    body: InitProducerIdRequest = request.body
    expected = None
    if body.producer_id != NO_PRODUCER_ID:
        expected = Producer(body.producer_id, body.producer_epoch)

    def tell(decision: Decision) -> InitProducerIdResponse:
        note_refusal(broker, request, "InitProducerId", decision.code, name)
        return InitProducerIdResponse(
            error_code=fenced_code(decision.code, request.version, since=FENCED_SINCE),
            producer_id=decision.producer_id,
            producer_epoch=decision.producer_epoch,
        )

    ask = partial(broker.transactions.start, name, body.transaction_timeout_ms, expected)
    return when_decided(broker, now_ms, ask, tell)


def _refusal(broker: Broker, request: Request) -> ErrorCode | None:
    body: InitProducerIdRequest = request.body
    name = body.transactional_id
    if name is not None and not transactional_id_allowed(broker, request, Operation.WRITE, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if name is None and not _may_write(broker.authorizer, request):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if name is None:
        return None
    if name == "":
        return ErrorCode.INVALID_REQUEST
    if not 0 < body.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _may_write(authorizer: Authorizer, request: Request) -> bool:
    """Who may write to any topic may do so idempotently (KIP-679)."""
    return cluster_allowed(
        authorizer, request, Operation.IDEMPOTENT_WRITE
    ) or authorizer.authorize_by_type(request, Operation.WRITE, ResourceType.TOPIC)


def _give(broker: Broker) -> InitProducerIdResponse | None:
    producer_id = broker.allocate_producer_id()
    if producer_id is None:
        return None
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


HANDLER = Handler(
    api_key=22,
    name="InitProducerId",
    versions=range(6),
    broker=run,
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
        Need(Operation.WRITE, ResourceType.TOPIC),
    ),
    kips=("KIP-98", "KIP-360", "KIP-679", "KIP-890"),
    skipped=(
        "Version 6, two-phase commit with an external coordinator (KIP-939), is not supported, as "
        "in Kafka 4.1 without unstable.api.versions.enable.",
    ),
)
