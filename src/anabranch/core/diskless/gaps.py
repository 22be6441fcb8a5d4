"""Producers of which the coordinator lacks a batch: what comes behind is refused so that it is sent
again.

Why: a producer may switch brokers with five batches in flight, or one object of a broker may fail
and the next succeed. The batch behind a gap is then told NOT_LEADER_OR_FOLLOWER for GAP_MS, as on
classic topics (`core.log.sequence_gaps`), and OUT_OF_ORDER_SEQUENCE_NUMBER only after that.

A producer that the coordinator does not know may have been forgotten: then nothing is missing, and
the first of its batches that comes again after GAP_MS may be taken as it is (`Commit.waited_for`;
the coordinator has a say, too). It is the evidence for that: a client sends a batch again only when
it waits for none before it, since what it repeats must keep its order. What comes behind is refused
meanwhile, also beyond GAP_MS, because it may be on its way for the first time.

Rules kept: a sequence number that lies before what is expected is no gap; a batch that was refused
only once shows nothing. Times are of the steady clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.diskless.rows import NO_PRODUCER, Batch, LogKey, Verdict
from anabranch.core.errors import ErrorCode
from anabranch.core.log.producers import is_behind
from anabranch.core.log.sequence_gaps import FORGOTTEN_MS, GAP, GAP_MS, MOST_HELD

if TYPE_CHECKING:
    from anabranch.core.diskless.buffer import DisklessTicket

UNKNOWN = -1
"""What is expected of a producer that the coordinator does not know, see `Verdict`."""


class _Epoch(NamedTuple):
    """A producer's epoch in a partition."""

    key: LogKey
    producer_id: int
    producer_epoch: int


class _Gap(NamedTuple):
    """What is expected, the first sequence number that was refused, and since when."""

    expected: int
    first: int
    since_ms: int


class Gaps:
    """The gaps that are waited for; empty but for a minute after one was seen."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[_Epoch, _Gap] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def told(self, batch: Batch, verdict: Verdict, now_ms: int, *, waited: bool) -> ErrorCode:
        """What the producer of a batch that is out of order is told; `waited`: the coordinator
        refused it although it was one of `waited_for`."""
        self._forget(now_ms)
        expected, sequence = verdict.expected_sequence, batch.base_sequence
        if expected != UNKNOWN and not is_behind(sequence, expected):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        epoch = _epoch(batch)
        gap = self._seen.get(epoch)
        if gap is None or gap.expected != expected or _is_earlier(batch, gap):
            self._seen.pop(epoch, None)
            gap = self._seen[epoch] = _Gap(expected, sequence, now_ms)
        is_over = waited if expected == UNKNOWN else now_ms - gap.since_ms >= GAP_MS
        return verdict.code if is_over else GAP

    def waited_for(self, sent: Iterable[tuple[Batch, DisklessTicket]]) -> frozenset[int]:
        """Which of an object's batches are the first ones of producers that are not known, and came
        again GAP_MS after they were refused."""
        if not self._seen:
            return frozenset()
        return frozenset(
            place
            for place, (batch, ticket) in enumerate(sent)
            if batch.producer_id != NO_PRODUCER and self._came_again(batch, ticket.since_ms)
        )

    def _came_again(self, batch: Batch, came_ms: int) -> bool:
        gap = self._seen.get(_epoch(batch))
        if gap is None or (gap.expected, gap.first) != (UNKNOWN, batch.base_sequence):
            return False
        return came_ms - gap.since_ms >= GAP_MS

    def _forget(self, now_ms: int) -> None:
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) <= MOST_HELD and now_ms - self._seen[oldest].since_ms < FORGOTTEN_MS:
                return
            del self._seen[oldest]


def _epoch(batch: Batch) -> _Epoch:
    return _Epoch(batch.key, batch.producer_id, batch.producer_epoch)


def _is_earlier(batch: Batch, gap: _Gap) -> bool:
    """Whether a batch lies before the first one that was refused of a producer that is not
    known."""
    return gap.expected == UNKNOWN and is_behind(gap.first, batch.base_sequence)
