"""Which records of transactions may be gone at the end, or at a replica that was read before.

What: compaction takes a record once a later one of its key is committed, and a tombstone in time;
where records expire, those before a leader's log start are gone. `may_be_gone` says so of a record
and a time, from what clients wrote and were told, and from the offsets that any reader saw. Rule
kept: a record that was aborted supersedes nothing, and of two records whose order is not known each
may have superseded the other. Not here: bytes in logs (`compacted.py` has the same by offsets).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from anabranch.sim.transaction_history import COMMITTED, UNKNOWN

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition
    from anabranch.sim.checks.truth import Truth
    from anabranch.sim.transaction_history import TransactionHistory, Written

NOT_KNOWN = -1
MAY_COUNT = frozenset({COMMITTED, UNKNOWN})


class Counted(NamedTuple):
    """A record that may have superseded others."""

    offset: int
    since_us: int
    """When its commit was first asked for."""


class Superseded:
    """See the module. It is made when the history is over."""

    def __init__(self, history: TransactionHistory, truths: Mapping[TopicPartition, Truth]) -> None:
        self._truths = truths
        self._offsets = {
            (read.place, value): offset for read in history.reads for offset, value in read.records
        }
        self._of_key: dict[tuple[TopicPartition, bytes], list[Counted]] = defaultdict(list)
        for transaction in history.transactions:
            if transaction.outcome in MAY_COUNT:
                for written in transaction.writes:
                    if written.key is not None:
                        self._of_key[written.place, written.key].append(
                            Counted(self.offset(written), transaction.commit_sent_us)
                        )

    def offset(self, written: Written) -> int:
        """Where a record lies: as its client was told, or as any reader was shown it."""
        if written.offset >= 0:
            return written.offset
        return self._offsets.get((written.place, written.value), NOT_KNOWN)

    def may_be_gone(self, written: Written, by_us: int) -> bool:
        """Whether a record that is committed need not be in a log by a time."""
        if written.key is None:
            return False
        own = self.offset(written)
        if written.is_tombstone or self._may_have_expired(written.place, own):
            return True
        others = self._of_key[written.place, written.key]
        if own == NOT_KNOWN:
            return sum(each.since_us <= by_us for each in others) > 1
        return any(
            each.since_us <= by_us and (each.offset > own or each.offset == NOT_KNOWN)
            for each in others
        )

    def _may_have_expired(self, place: TopicPartition, offset: int) -> bool:
        truth = self._truths.get(place)
        return truth is not None and truth.expires and offset < truth.deleted_to
