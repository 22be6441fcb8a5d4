"""Producers that a full disk holds up: what comes behind a batch that it refused is refused alike.

Why: a client has several batches in flight. With room again for the next one it would land before
the one that was refused (a producer that the log does not know may begin anywhere), or be told that
it is out of order, whereupon librdkafka raises its epoch and sends again what other brokers took.
Rule kept: of an idempotent producer nothing behind a refused batch is taken before that batch, for
`HELD_UP_MS`; another epoch begins anew. Not here: batches that came before (`core.log.producers`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from anabranch.core.log.files import DiskFull
from anabranch.core.log.producers import SEQUENCES

if TYPE_CHECKING:
    from anabranch.core.types import Buffer

HELD_UP_MS = 30_000
"""How long a refused batch is waited for: a client that is still there sends it again sooner."""
_PRODUCER = Struct(">qhi")
"""Of a batch's header: producer id, producer epoch, first sequence number."""
_PRODUCER_AT = 43


class HeldUp:
    """One partition's producers of which a batch was refused: the first one that was."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, tuple[int, int, int]] = {}
        """Producer id -> epoch, first sequence number, and when; the oldest first."""

    def __bool__(self) -> bool:
        """Whether there is any: asked before anything that costs time."""
        return bool(self._refused)

    def refused(self, records: Buffer, now_ms: int) -> None:
        """The disk had no room for a batch."""
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if producer_id >= 0:
            self._refused.pop(producer_id, None)
            self._refused[producer_id] = (epoch, sequence, now_ms)
        while self._refused:
            oldest = next(iter(self._refused))
            if 0 <= now_ms - self._refused[oldest][2] < HELD_UP_MS:
                break
            del self._refused[oldest]

    def check(self, records: Buffer, now_ms: int) -> None:
        """Raises DiskFull for a batch behind one that was refused."""
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        held_epoch, first, since_ms = self._refused.get(producer_id, (epoch, sequence, now_ms))
        is_behind = 0 < (sequence - first) % SEQUENCES < SEQUENCES // 2
        if is_behind and epoch == held_epoch and 0 <= now_ms - since_ms < HELD_UP_MS:
            raise DiskFull("the batch before this one was refused, as a disk is full")

    def taken(self, records: Buffer) -> None:
        """A batch is in the log: if it was the refused one, those behind it may follow."""
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if self._refused.get(producer_id, ())[:2] == (epoch, sequence):
            del self._refused[producer_id]
