"""EndTxn: a producer commits or aborts its transaction.

KIP: KIP-98, KIP-890 (the producer's next epoch)
Versions: 0-5
Behaviour: needs WRITE on the transactional id. The answer comes when the decision is committed on
    the in-sync replicas of `__transaction_state`; markers are written afterwards. From version 5 on
    it contains the producer id and epoch for the next transaction; a repeated request gets the same
    response. Before version 2 PRODUCER_FENCED is INVALID_PRODUCER_EPOCH.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial
from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import (
    fenced_code,
    note_refusal,
    transactional_id_allowed,
    when_decided,
)
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.transactions.coordinator import Decision
from anabranch.core.coordination.transactions.rules import Producer
from anabranch.core.coordination.transactions.transaction import BUMPS_EPOCHS
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
EPOCH_SINCE = 5


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """How the producer goes on, or a wait for the decision to be committed."""
    body: EndTxnRequest = request.body
    name, version = body.transactional_id, request.version
    if not transactional_id_allowed(broker, request, Operation.WRITE, name):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not name:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

    def tell(decision: Decision) -> EndTxnResponse:
        note_refusal(broker, request, "EndTxn", decision.code, name)
        answer = EndTxnResponse(error_code=fenced_code(decision.code, version, since=FENCED_SINCE))
        if version >= EPOCH_SINCE:
            answer.producer_id = decision.producer_id
            answer.producer_epoch = decision.producer_epoch
        return answer

    ask = partial(
        _end,
        broker,
        body,
        BUMPS_EPOCHS if version >= EPOCH_SINCE else 0,
    )
    return when_decided(broker, now_ms, ask, tell)


def _end(broker: Broker, body: EndTxnRequest, client_version: int, now_ms: int) -> Any:
    return broker.transactions.end(
        body.transactional_id,
        Producer(body.producer_id, body.producer_epoch),
        commits=body.committed,
        client_version=client_version,
        now_ms=now_ms,
    )


HANDLER = Handler(
    api_key=26,
    name="EndTxn",
    versions=range(6),
    broker=run,
    needs=(Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),),
    kips=("KIP-98", "KIP-890"),
)
