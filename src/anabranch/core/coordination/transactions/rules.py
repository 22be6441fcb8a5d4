"""Who may do what to a transactional id: one pure function for each request.

What: each gives the next `Transaction`, which is to be written, or raises ApiError with the code
that the client is told. `Answered` stands for what needs no record, as it holds already. Rules
kept, as in Kafka 4.1:

- another producer id is INVALID_PRODUCER_ID_MAPPING, another epoch is PRODUCER_FENCED;
- what was decided stays decided: the same request again is answered as before, also when the first
  answer was lost and the epoch has gone up since (KIP-890, KAFKA-14402); the opposite is
  INVALID_TXN_STATE;
- while a record is on its way (`is_pending`), or markers are written, the client comes again
  (CONCURRENT_TRANSACTIONS).

Stricter than Kafka: a producer whose transaction the coordinator aborted is fenced also where its
EndTxn looks like a second one, since the epoch that it would be told is not its own.

Source: KIP-98, KIP-360, KIP-588, KIP-890. Not here: writing, waiting (`coordinator`), versions of
requests (`core/api`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.coordination.transactions import transaction as change
from anabranch.core.coordination.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DECIDED,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from anabranch.core.coordination.transactions.transaction import (
    BUMPS_EPOCHS,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import TopicPartition


class Producer(NamedTuple):
    """A producer id and an epoch of it."""

    producer_id: int
    epoch: int


class Answered(NamedTuple):
    """Nothing is to be written: the answer is what stands there."""

    transaction: Transaction


class NeedsProducerId(Exception):
    """Decide again, with a producer id that was never used."""


# A producer starts.


def started(
    before: Transaction | None,
    timeout_ms: int,
    expected: Producer | None,
    *,
    is_pending: bool,
    new_producer_id: int | None,
    server_version: int,
    now_ms: int,
) -> Transaction:
    """InitProducerId: who had the id before is fenced, and its transaction is aborted first.

    `expected` is what a producer that goes on has now. The result is in EMPTY, or in PREPARE_ABORT:
    then the client is told CONCURRENT_TRANSACTIONS, and comes again."""
    if is_pending:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before is None:
        return change.begun(_needed(new_producer_id), timeout_ms, now_ms)
    if expected is not None and not _may_go_on(before, expected):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if before.state is ONGOING:
        return change.fenced(before, now_ms, server_version)
    if before.state not in IDLE:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return _initialized(before, timeout_ms, expected, new_producer_id, now_ms)


def _may_go_on(before: Transaction, expected: Producer) -> bool:
    """Whether a producer is the newest one, or was before it was given another producer id."""
    if expected.producer_id == before.producer_id or _comes_next(before, expected):
        return True
    return expected.producer_id == before.previous_producer_id and expected.epoch >= LAST_EPOCH


def _initialized(
    before: Transaction,
    timeout_ms: int,
    expected: Producer | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Transaction:
    epoch = before.producer_epoch
    last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.epoch
    is_newest = expected is None or expected.epoch == epoch
    if not is_newest and last_epoch != before.last_producer_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if epoch > LAST_EPOCH or (is_newest and before.is_exhausted):
        new_id = _needed(new_producer_id)
        return change.with_new_producer_id(
            before, new_id, timeout_ms, now_ms, last_epoch=last_epoch
        )
    if is_newest:
        return change.with_next_epoch(before, timeout_ms, now_ms, last_epoch=last_epoch)
    return change.with_same_epoch(before, timeout_ms, now_ms)


def _needed(new_producer_id: int | None) -> int:
    if new_producer_id is None:
        raise NeedsProducerId
    return new_producer_id


# Partitions join.


def added(
    before: Transaction | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    *,
    is_pending: bool,
    client_version: int,
    now_ms: int,
) -> Transaction | Answered:
    """AddPartitionsToTxn, AddOffsetsToTxn."""
    before = _checked(before, producer)
    if is_pending or before.state in DECIDED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.state is ONGOING and partitions <= before.partitions:
        return Answered(before)
    return change.with_partitions(before, partitions, now_ms, client_version)


def check_part(
    before: Transaction | None, producer: Producer, partition: TopicPartition
) -> ErrorCode:
    """Whether a partition belongs to the transaction under way, as a partition's leader asks."""
    try:
        before = _checked(before, producer)
    except ApiError as fault:
        return fault.code
    if before.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if partition in before.partitions else ErrorCode.TRANSACTION_ABORTABLE


def _checked(before: Transaction | None, producer: Producer) -> Transaction:
    if before is None:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if _comes_next(before, producer):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if before.producer_epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    return before


def _comes_next(before: Transaction, producer: Producer) -> bool:
    """Whether a producer goes on with another producer id, and the markers of its transaction
    before are being written: it was told so when that was decided."""
    if before.next_producer_id == NO_PRODUCER_ID:
        return False
    return producer == (before.next_producer_id, 0)


# The end.


def ended(
    before: Transaction | None,
    producer: Producer,
    *,
    commits: bool,
    is_pending: bool,
    client_version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Transaction | Answered:
    """EndTxn. The answer of `Answered` is the producer as it goes on."""
    before, is_retry = _ending(before, producer)
    if is_pending:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.state in DECIDED:
        raise ApiError(_while_markers_are_written(before, commits))
    if before.state is ONGOING or _aborts_nothing(before, commits, client_version, is_retry):
        return change.ended(
            before,
            commits=commits,
            client_version=client_version,
            next_producer_id=_next_producer_id(before, client_version, new_producer_id),
            now_ms=now_ms,
        )
    if (is_retry or not before.bumps_epochs) and _was_decided(before, commits):
        return Answered(before)
    raise ApiError(ErrorCode.INVALID_TXN_STATE)


def _ending(before: Transaction | None, producer: Producer) -> tuple[Transaction, bool]:
    """The transaction that a producer ends, and whether it had ended it before."""
    if before is None:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if _comes_next(before, producer):
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_new_id = _has_gone_on_with_new_id(before, producer)
    if before.producer_id != producer.producer_id and not has_new_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if has_new_id or _has_gone_on(before, producer):
        return before, True
    if before.producer_epoch != producer.epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if before.state in DECIDED and before.bumps_epochs:
        if before.is_fenced:  # no producer was given this epoch
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return before, False


def _has_gone_on(before: Transaction, producer: Producer) -> bool:
    """Whether a producer asks in the epoch before: it did not hear of the new one."""
    return (
        before.bumps_epochs
        and not before.is_fenced
        and before.state in (PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
        and before.producer_epoch == producer.epoch + 1
    )


def _has_gone_on_with_new_id(before: Transaction, producer: Producer) -> bool:
    """The same where the epochs were used up: it asks with the producer id before."""
    return (
        before.bumps_epochs
        and before.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
        and before.producer_epoch == 0
        and producer == (before.previous_producer_id, LAST_EPOCH)
    )


def _while_markers_are_written(before: Transaction, commits: bool) -> ErrorCode:
    if before.commits == commits:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _aborts_nothing(
    before: Transaction, commits: bool, client_version: int, is_retry: bool
) -> bool:
    """Whether a producer aborts before the coordinator has heard of any partition: its epoch goes
    up, so that batches on their way to a partition are refused there (KIP-890)."""
    if commits or is_retry:
        return False
    return (client_version if before.state is EMPTY else before.client_version) >= BUMPS_EPOCHS


def _next_producer_id(before: Transaction, client_version: int, new_producer_id: int | None) -> int:
    if client_version < BUMPS_EPOCHS or not before.is_exhausted:
        return NO_PRODUCER_ID
    return _needed(new_producer_id)


def _was_decided(before: Transaction, commits: bool) -> bool:
    return before.state is (COMPLETE_COMMIT if commits else COMPLETE_ABORT)
