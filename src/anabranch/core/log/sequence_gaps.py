"""Gaps in producers' sequences: what comes behind a missing batch is refused until that comes.

Why: a client has several batches in flight. One is refused for a cause that passes: this broker
does not know yet that the partition is there, or that it leads it; too few replicas are in sync;
the disk is full. Were the cause gone for the next one, it would land before the one that was
refused (a producer that the log does not know may begin anywhere), or be told that it is out of
order, whereupon librdkafka raises its epoch and sends again what other partitions have. Rule kept:
of an idempotent producer nothing behind a refused batch is taken before that batch is in the log,
here or by way of another leader, for `MISSING_MS`. Each epoch has its own order: a late batch of an
older one changes nothing for a newer one. A gap that no refusal here explains (another broker
refused the batch, or took it and lost it with its leadership) is waited for `GAP_MS` before it is
told. Not here: batches that came before (`core.log.producers`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.producers import is_behind
from anabranch.core.wire.batch import BATCH_OVERHEAD, PRODUCER, PRODUCER_AT

if TYPE_CHECKING:
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.types import Buffer

Place: TypeAlias = tuple[Hashable, int]
"""A topic's name or id, as the client says it, and a partition's index."""
Key: TypeAlias = tuple[Place, int, int]
"""A place, a producer id and its epoch."""

MISSING_MS = 30_000
"""How long a refused batch is waited for: a client that is still there sends it again sooner."""
GAP_MS = 10_000
"""How long a batch is waited for of which this broker knows only that it is missing."""
FORGOTTEN_MS = 60_000
"""By then a client that was told of a gap has begun a new epoch, or given up."""
MOST_HELD = 100_000
"""Producers' epochs that are held up at once; of more, the oldest are let go."""
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Refusals after which a client sends the same batch again."""
GAP = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What the batch behind a young gap is told: clients look for the leader and send all again."""


class MissingBatch(NamedTuple):
    """The first batch of an epoch that the log lacks; what is behind it is told `code`."""

    sequence: int
    since_ms: int
    code: ErrorCode
    is_gap: bool
    """Nobody refused it here: a later batch came, and the log said that one is missing."""

    def is_awaited(self, now_ms: int) -> bool:
        """Whether it may still come; then the log decides."""
        return now_ms - self.since_ms < (GAP_MS if self.is_gap else MISSING_MS)


class SequenceGaps:
    """One broker's producers of which a batch is missing: the first one that is.

    Times are of the steady clock: after a step of the other one a batch would overtake."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: dict[Key, MissingBatch] = {}
        """The oldest first. Empty but for a minute after a refusal."""

    def refused(
        self,
        place: Place,
        records: Buffer | None,
        code: ErrorCode,
        producers: ProducerStates | None,
        now_ms: int,
    ) -> ErrorCode:
        """A batch was not taken: what its client is told, which is `code` but for a gap.

        One that the client will not send again is left alone. `producers` is what the partition's
        log knows of them, None without a log."""
        if records is None or len(records) < BATCH_OVERHEAD:
            return code
        producer_id, epoch, sequence = PRODUCER.unpack_from(records, PRODUCER_AT)
        if producer_id < 0 or sequence < 0:
            return code
        key = place, producer_id, epoch
        held, is_gap = self._missing(key, producers), False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and producers is not None:
            expected = producers.next_sequence(producer_id, epoch)
            # `check` lets nothing get to the log while the batch is awaited.
            was_awaited = held is not None and held.is_gap and held.sequence == expected
            if is_behind(sequence, expected) and not was_awaited:
                held, sequence, is_gap, code = None, expected, True, GAP
        if code not in PASSING:
            return code
        if held is not None and not held.is_gap and not held.is_awaited(now_ms):
            held = None
        if held is None or not is_behind(sequence, held.sequence):
            self.first.pop(key, None)
            self.first[key] = MissingBatch(sequence, now_ms, code, is_gap)
        self._forget(now_ms)
        return code

    def check(
        self, place: Place, records: Buffer | None, producers: ProducerStates, now_ms: int
    ) -> None:
        """Raises ApiError for a batch behind one that is missing, with that one's code."""
        self._forget(now_ms)
        if records is None or len(records) < BATCH_OVERHEAD:
            return
        producer_id, epoch, sequence = PRODUCER.unpack_from(records, PRODUCER_AT)
        held = self._missing((place, producer_id, epoch), producers)
        if held is not None and held.is_awaited(now_ms) and is_behind(sequence, held.sequence):
            raise ApiError(held.code, "The producer's batch before this one is missing.")

    def _missing(self, key: Key, producers: ProducerStates | None) -> MissingBatch | None:
        """What this producer's epoch lacks; forgets what the log has by now, or will never have."""
        held = self.first.get(key)
        if held is None:
            return None
        _, producer_id, epoch = key
        if producers is not None and producers.reached(producer_id, epoch, held.sequence):
            del self.first[key]
            return None
        return held

    def _forget(self, now_ms: int) -> None:
        """Drop the oldest: those of long ago, and what is too many."""
        while self.first:
            oldest = next(iter(self.first))
            age_ms = now_ms - self.first[oldest].since_ms
            if len(self.first) <= MOST_HELD and age_ms < FORGOTTEN_MS:
                break
            del self.first[oldest]
