"""Decisions on their way into the log: planned, under way, committed; and who waits for them.

What: plans stand on one another at once; those that wait for the disk share the next append; an
answer leaves when everything that it stands on is committed. Rule kept: one append is under way at
a time, and what was planned is forgotten when its outcome is not known to be a commit.
Not here: the lease (`lease.py`), what an unknown outcome leads to (`tenure.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from anabranch.core.controller.partitions.election_counts import ElectionCounts, elections_in
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.store import StoredBatch
from anabranch.core.wire.metadata_records import MetadataRecord


class WaitingAnswer(NamedTuple):
    """An answer that leaves when the log is committed up to `offset`."""

    offset: int
    ticket: Any
    response: Any


class Planned(NamedTuple):
    """A batch, the state after it, whom it elects, and when that was decided, by the steady
    clock."""

    batch: StoredBatch
    image: MetadataImage
    elections: ElectionCounts
    decided_ms: int


class Appends:
    """What is not committed yet. The counts are of all terms of this process."""

    def __init__(self) -> None:
        self.planned: list[Planned] = []
        self.under_way: list[Planned] = []
        self.waiting: deque[WaitingAnswer] = deque()
        self.elections_total = self.unclean_elections_total = self.elections_ms_total = 0

    def plan(
        self,
        batch: StoredBatch,
        image: MetadataImage,
        records: Sequence[MetadataRecord],
        now_ms: int,
    ) -> None:
        """One more decision, which stands on all before it; `image` is the state after it."""
        self.planned.append(Planned(batch, image, elections_in(records), now_ms))

    def take(self) -> tuple[StoredBatch, ...]:
        """Everything that is planned goes under way."""
        assert not self.under_way
        self.under_way, self.planned = self.planned, []
        return tuple(each.batch for each in self.under_way)

    def commit(self, now_ms: int) -> list[Planned]:
        """What was under way is committed: whom it elects is elected."""
        committed, self.under_way = self.under_way, []
        for each in committed:
            counts = each.elections
            self.elections_total += counts.elections
            self.unclean_elections_total += counts.unclean
            self.elections_ms_total += counts.elections * (now_ms - each.decided_ms)
        return committed

    def ready(self, end_offset: int) -> list[WaitingAnswer]:
        """The answers that stand on nothing beyond the committed end."""
        found = []
        while self.waiting and self.waiting[0].offset <= end_offset:
            found.append(self.waiting.popleft())
        return found

    def drop(self) -> list[WaitingAnswer]:
        """Forget everything; those who waited."""
        dropped = list(self.waiting)
        self.planned, self.under_way = [], []
        self.waiting.clear()
        return dropped
