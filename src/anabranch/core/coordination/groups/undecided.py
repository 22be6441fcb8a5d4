"""Offsets that open transactions have committed: kept apart until a marker decides about them.

Why: an offset that is committed in a transaction counts with the transaction's records, or not at
all (KIP-98); until then a reader that wants stable offsets must know that one is on its way
(KIP-447). Rules kept: a marker decides all that its producer had committed before it; of two
offsets that count the one that was written later stands, whichever was decided first, since
compaction leaves that one. So what is committed without a transaction, or deleted, after an
undecided offset takes its place (the offset stays undecided for readers). Reading a log back and
serving it use this same class. Source: Kafka 4.1's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.in_flight import InFlight, Place

Key: TypeAlias = tuple[str, Place]
"""A group and a partition."""
Decided: TypeAlias = dict[Key, tuple[int, CommittedOffset | None]]
"""What one transaction committed, each with its place in the order of writing; None where something
later took its place."""


class Undecided:
    """The offsets of open transactions in one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._of: dict[int, Decided] = {}
        self._places = InFlight()
        self._written = 0
        self._newest: dict[Key, int] = {}
        """Of what was decided for a place, when the offset that stands was written: while another
        offset is undecided there."""

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def add(self, producer_id: int, key: Key, committed: CommittedOffset | None) -> None:
        """A producer's transaction commits an offset."""
        of_producer = self._of.setdefault(producer_id, {})
        if key not in of_producer:
            self._places.begin(key[0], (key[1],))
        self._written += 1
        of_producer[key] = self._written, committed

    def offsets(self) -> Iterator[tuple[Key, CommittedOffset]]:
        """All that a marker may still make count."""
        for of_producer in self._of.values():
            for key, (_, offset) in of_producer.items():
                if offset is not None:
                    yield key, offset

    def take(self, producer_id: int) -> Decided:
        """A marker stands in the log: what it decides about. Call `end` when that counts."""
        return self._of.pop(producer_id, {})

    def restore(self, producer_id: int, decided: Decided) -> None:
        """The marker was not written after all."""
        if decided:
            self._of[producer_id] = decided

    def end(self, decided: Decided, *, committed: bool) -> list[tuple[Key, CommittedOffset]]:
        """It counts: the offsets to keep."""
        kept = []
        for key, (written, offset) in decided.items():
            group_id, place = key
            self._places.end(group_id, (place,))
            stands = self._newest.pop(key, 0)
            if committed and offset is not None and written > stands:
                kept.append((key, offset))
                stands = written
            if stands and place in self._places.of(group_id):
                self._newest[key] = stands
        return kept

    def replace(self, group_id: str, places: Iterable[Place]) -> None:
        """Something outside of transactions sets these offsets, or deletes them."""
        there = self._places.of(group_id)
        if not there:
            return
        for place in places:
            if place in there:
                for of_producer in self._of.values():
                    if (group_id, place) in of_producer:
                        of_producer[group_id, place] = self._written, None

    def of(self, group_id: str) -> Collection[Place]:
        """Where a group has an offset that is not decided."""
        return self._places.of(group_id)

    def groups(self) -> list[str]:
        """The groups that have one."""
        return self._places.groups()
