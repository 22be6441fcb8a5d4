"""ListTransactions: the transactional ids that this broker coordinates.

KIP: KIP-664, KIP-994 (filter by duration), KIP-1152 (filter by a pattern of ids)
Versions: 0-2
Behaviour: ids that the client may DESCRIBE, filtered by state, producer id and how long their
    transaction has lasted; a state that is not known is named in the answer. While a partition of
    ids is read, those of the others are listed beside COORDINATOR_LOAD_IN_PROGRESS, where Kafka
    lists none. A pattern matches whole ids, in RE2's syntax without Unicode classes; one that
    cannot be read, or takes too long, is INVALID_REGULAR_EXPRESSION.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.transactions import transactional_id_allowed
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.transactions.shard import TransactionShard
from anabranch.core.coordination.transactions.states import STATES_BY_TITLE
from anabranch.core.coordination.transactions.transaction import Transaction
from anabranch.core.errors import ErrorCode
from anabranch.core.patterns.automaton import Pattern
from anabranch.core.patterns.syntax import PatternError
from anabranch.core.request import Request
from anabranch.core.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def run(broker: Broker, request: Request, now_ms: int) -> ListTransactionsResponse:
    """The ids, in the order of their partitions."""
    shards = list(broker.transactions.shards.values())
    try:
        response = _listed(broker, request, shards, now_ms)
    except PatternError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    if any(not shard.is_ready for shard in shards):
        response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return response


def _listed(
    broker: Broker, request: Request, shards: list[TransactionShard], now_ms: int
) -> ListTransactionsResponse:
    body: ListTransactionsRequest = request.body
    matches = _filter(body, now_ms)
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in body.state_filters if each not in STATES_BY_TITLE],
        transaction_states=[
            TransactionState(
                transactional_id=name,
                producer_id=each.producer_id,
                transaction_state=each.state.title,
            )
            for shard in shards
            if shard.is_ready and shard.is_current
            for name, each in shard.transactions.items()
            if matches(name, each)
            and transactional_id_allowed(broker, request, Operation.DESCRIBE, name)
        ],
    )


def _filter(body: ListTransactionsRequest, now_ms: int) -> Callable[[str, Transaction], bool]:
    states = {STATES_BY_TITLE.get(each) for each in body.state_filters}
    producer_ids = set(body.producer_id_filters)
    pattern = Pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None

    def matches(name: str, transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if states and transaction.state not in states:
            return False
        if pattern is not None and not pattern.matches(name):
            return False
        return body.duration_filter < 0 or now_ms - transaction.started_ms > body.duration_filter

    return matches


HANDLER = Handler(
    api_key=66,
    name="ListTransactions",
    versions=range(3),
    broker=run,
    needs=(Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
    kips=("KIP-664", "KIP-994", "KIP-1152"),
)
