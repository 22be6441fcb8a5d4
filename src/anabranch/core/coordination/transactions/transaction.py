"""One transactional id as its record says it, and the changes that it can go through.

What: `Transaction`, a value that never changes, and a function for each change, which gives the
next value. Why a value: memory follows the log, so that a change counts when its record is
committed, and nothing has to be taken back. Rule kept: a change that the table of states does not
know raises `Bug`.

Epochs: a producer has one epoch at a time, and what bears a smaller one is refused everywhere. With
transaction.version 2 each end of a transaction raises it (KIP-890), so that a late batch of one
transaction never joins the next. An epoch of 32,766 is the last that a producer is given; one more
remains to fence it. Then the id goes on with a new producer id, from 0.

Source: KIP-98, KIP-360, KIP-890. Not here: who may ask for which change (`rules`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.coordination.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    IDLE,
    MAY_COME_FROM,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TransactionState,
)
from anabranch.core.errors import Bug
from anabranch.core.types import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
LAST_EPOCH = 2**15 - 2
"""The last epoch that a producer is given."""
FENCE_EPOCH = LAST_EPOCH + 1
"""The last one that there is: it fences the producer that has the one before."""
NOT_STARTED_MS = -1

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
"""One for all ids: each empty set of its own takes as much memory as a third of an id."""

BUMPS_EPOCHS = 2
"""The transaction.version since which each end of a transaction raises the epoch."""


class Transaction(NamedTuple):
    """A transactional id. Times are of the wall clock, since they outlive a broker."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    started_ms: int = NOT_STARTED_MS
    updated_ms: int = 0
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before this one, if the producer that has it raised it itself. Not in the log."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """With which the producer goes on once the markers are written."""
    client_version: int = 0
    """The transaction.version by which the present transaction is ended."""
    is_fenced: bool = False
    """Whether the coordinator ended it, and not its producer. Not in the log, but for the last
    epoch, of which it follows."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer can be given no further epoch."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def bumps_epochs(self) -> bool:
        """Whether the transaction is ended by KIP-890's rules."""
        return self.client_version >= BUMPS_EPOCHS

    @property
    def commits(self) -> bool:
        """What was decided."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    @property
    def next_producer(self) -> tuple[int, int]:
        """The producer id and epoch of its producer once every partition has its marker."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, 0

    def is_overdue(self, now_ms: int) -> bool:
        """Whether it has lasted longer than its producer wanted."""
        return self.state is ONGOING and self.started_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether it was left alone for so long that it is forgotten."""
        return self.state in IDLE and self.updated_ms <= now_ms - expiration_ms

    def become(self, state: TransactionState, **changed: object) -> Transaction:
        """The same id in another state. Raises Bug where the table knows no such change."""
        if self.state not in MAY_COME_FROM[state]:
            raise Bug(f"a transaction cannot go from {self.state.title} to {state.title}")
        return self._replace(state=state, **changed)  # type: ignore[arg-type]


def begun(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that was not known."""
    return Transaction(producer_id, 0, timeout_ms, EMPTY, updated_ms=now_ms)


def with_next_epoch(
    before: Transaction, timeout_ms: int, now_ms: int, *, last_epoch: int
) -> Transaction:
    """A producer starts, or starts again: who had the epoch before is fenced."""
    return _empty(before, timeout_ms, now_ms, last_epoch)._replace(
        producer_epoch=before.producer_epoch + 1
    )


def with_same_epoch(before: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    """A producer starts that has been given its epoch, and did not hear of it."""
    return _empty(before, timeout_ms, now_ms, before.last_producer_epoch)


def with_new_producer_id(
    before: Transaction, producer_id: int, timeout_ms: int, now_ms: int, *, last_epoch: int
) -> Transaction:
    """A producer starts when the epochs of the old producer id are used up."""
    return _empty(before, timeout_ms, now_ms, last_epoch)._replace(
        producer_id=producer_id, producer_epoch=0
    )


def _empty(before: Transaction, timeout_ms: int, now_ms: int, last_epoch: int) -> Transaction:
    return before.become(
        EMPTY,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        started_ms=NOT_STARTED_MS,
        updated_ms=now_ms,
        last_producer_epoch=last_epoch,
        previous_producer_id=before.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
        is_fenced=False,
    )


def with_partitions(
    before: Transaction, added: frozenset[TopicPartition], now_ms: int, client_version: int
) -> Transaction:
    """Partitions join the transaction, which begins with the first of them."""
    is_first = before.state is not ONGOING
    return before.become(
        ONGOING,
        partitions=added if is_first else before.partitions | added,
        started_ms=now_ms if is_first else before.started_ms,
        updated_ms=now_ms,
        client_version=client_version,
        is_fenced=False,
    )


def ended(
    before: Transaction,
    *,
    commits: bool,
    client_version: int,
    next_producer_id: int,
    now_ms: int,
) -> Transaction:
    """Its producer decided. `next_producer_id` replaces a producer id without a further epoch."""
    after = before.become(
        PREPARE_COMMIT if commits else PREPARE_ABORT,
        partitions=before.partitions if before.state is ONGOING else NO_PARTITIONS,
        started_ms=before.started_ms if before.state is ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
        next_producer_id=next_producer_id,
        is_fenced=False,
    )
    if client_version < BUMPS_EPOCHS:
        return after
    return after._replace(producer_epoch=_raised(before), last_producer_epoch=before.producer_epoch)


def fenced(before: Transaction, now_ms: int, server_version: int) -> Transaction:
    """The coordinator aborts it, in an epoch that fences its producer: once more only, also where
    each end raises the epoch (KAFKA-19367). That producer may ask to go on (KIP-588)."""
    fence = before.become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))
    return fence.become(
        PREPARE_ABORT,
        updated_ms=now_ms,
        last_producer_epoch=before.producer_epoch,
        client_version=server_version,
        next_producer_id=NO_PRODUCER_ID,
        is_fenced=True,
    )


def _raised(before: Transaction) -> int:
    return min(before.producer_epoch + 1, FENCE_EPOCH)


def completed(before: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    producer_id, producer_epoch = before.next_producer
    return before.become(
        COMPLETE_COMMIT if before.commits else COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
        next_producer_id=NO_PRODUCER_ID,
        previous_producer_id=before.producer_id,
    )


def dying(before: Transaction) -> Transaction:
    """Its tombstone is on its way."""
    return before.become(DEAD)
