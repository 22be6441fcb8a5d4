"""InitProducerId: an id under which a producer's batches are recognised when they come again.

KIP: KIP-98 (idempotent producers), KIP-360 (epoch bumps).
Versions: 0-5.
Behaviour: without a transactional id every request gets a new id with epoch 0, from a block that
    the controller gave to this broker; when the next block is late, COORDINATOR_LOAD_IN_PROGRESS.
    With one, this broker is not its coordinator: NOT_COORDINATOR. Needs WRITE on the transactional
    id, or IDEMPOTENT_WRITE on the cluster.
Skipped: the transaction coordinator.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import PRODUCER_IDS, Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
BLOCK_WAIT_MS = 1_000
"""How long a request waits for a block of ids before the client is asked to come again."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """A new producer id, or the error, or a wait for the next block of ids."""
    refusal = _refusal(broker, request)
    if refusal is not None:
        return _refused(refusal)
    given = _give(broker)
    if given is not None:
        return given

    def poll(_now_ms: int, expired: bool) -> InitProducerIdResponse | None:
        given = _give(broker)
        if given is None and expired:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return given

    return Wait((PRODUCER_IDS,), now_ms + BLOCK_WAIT_MS, poll)


def _refusal(broker: Broker, request: Request) -> ErrorCode | None:
    body: InitProducerIdRequest = request.body
    name = body.transactional_id
    if name is not None and not broker.authorizer.authorize(
        request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if name is None and not cluster_allowed(broker.authorizer, request, Operation.IDEMPOTENT_WRITE):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if name is None:
        return None
    if name == "":
        return ErrorCode.INVALID_REQUEST
    if not 0 < body.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NOT_COORDINATOR


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
    ),
    kips=("KIP-98", "KIP-360"),
    skipped=("Transactional ids are answered with NOT_COORDINATOR.",),
)
