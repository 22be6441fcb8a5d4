"""Producers of which the coordinator lacks a batch: what comes behind is refused so that it is sent
again.

Why: a producer may switch brokers with five batches in flight, or one object of a broker may fail
and the next succeed. The batch behind a gap is then told NOT_LEADER_OR_FOLLOWER for GAP_MS, as on
classic topics (`core.log.held_up`), and OUT_OF_ORDER_SEQUENCE_NUMBER only after that. Rule kept: a
sequence number that lies before what is expected is no gap. Times are of the steady clock.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.diskless.rows import Batch, LogKey, Verdict
from anabranch.core.errors import ErrorCode
from anabranch.core.log.held_up import FORGOTTEN_MS, GAP, GAP_MS, MOST_HELD
from anabranch.core.log.producers import is_behind


class _Epoch(NamedTuple):
    """A producer's epoch in a partition."""

    key: LogKey
    producer_id: int
    producer_epoch: int


class Gaps:
    """The gaps that are waited for; empty but for a minute after one was seen."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[_Epoch, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def told(self, batch: Batch, verdict: Verdict, now_ms: int) -> ErrorCode:
        """What the producer of a batch that is out of order is told."""
        self._forget(now_ms)
        expected = max(0, verdict.expected_sequence)
        if not is_behind(batch.base_sequence, expected):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        epoch = _Epoch(batch.key, batch.producer_id, batch.producer_epoch)
        seen = self._seen.get(epoch)
        if seen is None or seen[0] != expected:
            self._seen.pop(epoch, None)
            seen = self._seen[epoch] = (expected, now_ms)
        return GAP if now_ms - seen[1] < GAP_MS else verdict.code

    def _forget(self, now_ms: int) -> None:
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) <= MOST_HELD and now_ms - self._seen[oldest][1] < FORGOTTEN_MS:
                return
            del self._seen[oldest]
