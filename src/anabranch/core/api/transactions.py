"""What handlers of transactions share: authorization, waits for records and for producer ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import PRODUCER_IDS, Broker
from anabranch.core.api.groups import wait_committed
from anabranch.core.coordination.transactions.coordinator import Decision
from anabranch.core.coordination.transactions.rules import NeedsProducerId
from anabranch.core.coordination.transactions.shard import Changed
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Told, Wait, then
from anabranch.core.request import Request

if TYPE_CHECKING:
    from anabranch.core.coordination.answers import Answer
    from anabranch.core.coordination.transactions.shard import TransactionShard

PRODUCER_ID_WAIT_MS = 1_000
"""How long a request waits for a block of producer ids before the client is asked to come again."""


def transactional_id_allowed(
    broker: Broker, request: Request, operation: Operation, transactional_id: str
) -> bool:
    """`authorize` for a transactional id."""
    return broker.authorizer.allows_all or broker.authorizer.authorize(
        request, operation, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def when_free(
    broker: Broker,
    transactional_id: str,
    now_ms: int,
    ask: Callable[[int], tuple[TransactionShard, Answer]],
    tell: Callable[[Decision], Told],
    *,
    is_client: bool = True,
) -> Told | Wait | Any:
    """As `when_decided`; while the transaction before is being ended it waits, since markers take
    milliseconds. A client waits as long as Kafka's partitions do for clients of KIP-890: told
    CONCURRENT_TRANSACTIONS, it pauses for 20 ms and more. What it sends next waits as well: an end
    of the transaction that is to begin would be taken for another end of the one before. A leader
    waits as long as it would pause."""
    config = broker.config
    longest_ms = config.add_partitions_to_txn_retry_backoff_ms
    if is_client:
        longest_ms = config.add_partitions_to_txn_retry_backoff_max_ms

    def decided(now_ms: int, expired: bool) -> Any:
        return _decided(broker, now_ms, ask, tell, may_wait=not expired)

    found = decided(now_ms, longest_ms <= 0)
    if found is not None:
        return found
    return Wait((Changed(transactional_id),), now_ms + longest_ms, decided, holds_up=is_client)


def when_decided(
    broker: Broker,
    now_ms: int,
    ask: Callable[[int], tuple[TransactionShard, Answer]],
    tell: Callable[[Decision], Told],
) -> Told | Wait | Any:
    """What `tell` makes of what the coordinator decides: at once, or when it is committed.

    COORDINATOR_NOT_AVAILABLE after `request.timeout.ms`, NOT_COORDINATOR as soon as another broker
    coordinates the id, COORDINATOR_LOAD_IN_PROGRESS when no producer id comes in time."""
    return _decided(broker, now_ms, ask, tell, may_wait=False)


def _decided(
    broker: Broker,
    now_ms: int,
    ask: Callable[[int], tuple[TransactionShard, Answer]],
    tell: Callable[[Decision], Told],
    *,
    may_wait: bool,
) -> Any:
    """None when something else is under way for the id and it may be asked again."""
    try:
        shard, answer = ask(now_ms)
    except ApiError as fault:
        if may_wait and fault.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return None
        return tell(Decision(fault.code))
    except NeedsProducerId:
        return _when_there_are_ids(broker, now_ms, ask, tell)

    def late() -> Decision:
        is_current = shard.is_current
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_current else ErrorCode.NOT_COORDINATOR
        return Decision(code)

    longest_ms = broker.config.request_timeout_ms
    waiting = wait_committed(answer, shard, now_ms, late, longest_ms)
    if isinstance(waiting, Wait):
        waiting.is_urgent = True  # the producer has nothing else to do, followers may hear later
    return then(waiting, tell)


def _when_there_are_ids(
    broker: Broker,
    now_ms: int,
    ask: Callable[[int], tuple[TransactionShard, Answer]],
    tell: Callable[[Decision], Told],
) -> Wait:
    def poll(now_ms: int, expired: bool) -> Any:
        if expired:
            return tell(Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return when_decided(broker, now_ms, ask, tell)

    return Wait((PRODUCER_IDS,), now_ms + PRODUCER_ID_WAIT_MS, poll)


def note_refusal(
    broker: Broker, request: Request, name: str, code: int, transactional_id: str, place: str = ""
) -> None:
    """Leave a refused request of a producer, which this body is, for the log; 0 is no refusal."""
    body = request.body
    producer = (body.producer_id, body.producer_epoch)
    broker.refusals.note(
        request,
        name,
        code,
        transactional_id=transactional_id,
        producer=producer,
        now_ms=broker.steady_ms,
        place=place,
    )


def fenced_code(code: ErrorCode, version: int, *, since: int) -> int:
    """PRODUCER_FENCED, or in versions before `since`, which do not know it, what they know."""
    if code is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
