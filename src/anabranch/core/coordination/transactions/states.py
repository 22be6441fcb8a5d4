"""The life of a transactional id: eight states, and which may follow which.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING, EMPTY, ...
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING, EMPTY, ...
                     -> PREPARE_EPOCH_FENCE -> PREPARE_ABORT
    EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT -> PREPARE_ABORT  (an abort of nothing, KIP-890)
    EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT -> DEAD

EMPTY has a producer and no transaction. ONGOING has partitions. PREPARE_COMMIT and PREPARE_ABORT
are decided, for good: what is left to do is to write markers. DEAD is being forgotten: its
tombstone is not committed yet. PREPARE_EPOCH_FENCE is passed within a step, when the coordinator
itself aborts, and never written.

Source: KIP-98, KIP-890, Kafka 4.1's states with their numbers in `__transaction_state`. Not here:
what moves an id (`rules`).
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """A state: its number in the log, and the name that Kafka's tools print."""

    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

IDLE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is under way: one may begin, a producer may start, the id may expire."""
DECIDED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""Markers are being written."""

MAY_COME_FROM = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING, PREPARE_EPOCH_FENCE},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: IDLE,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""The transition table: state -> the states before it."""

STATES_BY_NUMBER = {state.number: state for state in TransactionState}
STATES_BY_TITLE = {state.title: state for state in TransactionState}
