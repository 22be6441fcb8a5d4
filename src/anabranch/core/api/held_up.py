"""Producers that are held up: what comes behind a batch that was refused is refused alike.

Why: a client has several batches in flight. One is refused for a cause that passes: this broker
does not know yet that the partition is there, or that it leads it; too few replicas are in sync;
the disk is full. Were the cause gone for the next one, it would land before the one that was
refused (a producer that the log does not know may begin anywhere), or be told that it is out of
order, whereupon librdkafka raises its epoch and sends again what other partitions have. Rule kept:
of an idempotent producer nothing behind a refused batch is taken before that batch is in the log,
here or by way of another leader, for `HELD_UP_MS`; another epoch begins anew. Not here: batches
that came before (`core.log.producers`).
"""

from __future__ import annotations

from collections.abc import Hashable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.producers import is_behind
from anabranch.core.wire.batch import BATCH_OVERHEAD

if TYPE_CHECKING:
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.types import Buffer

Place: TypeAlias = tuple[Hashable, int]
"""A topic's name or id, as the client says it, and a partition's index."""

HELD_UP_MS = 30_000
"""How long a refused batch is waited for: a client that is still there sends it again sooner."""
MOST_HELD = 100_000
"""Producers that are held up at once; of more, the oldest are let go."""
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals after which a client sends the same batch again."""
_PRODUCER = Struct(">qhi")
"""Of a batch's header: producer id, producer epoch, first sequence number."""
_PRODUCER_AT = 43


class Refused(NamedTuple):
    """The first batch of a producer that was refused, when and why."""

    epoch: int
    sequence: int
    since_ms: int
    code: ErrorCode


class HeldUp:
    """One broker's producers of which a batch was refused: the first one that was."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: dict[tuple[Place, int], Refused] = {}
        """By place and producer id; the oldest first. Empty but after a refusal."""

    def refused(
        self,
        place: Place,
        records: Buffer | None,
        code: ErrorCode,
        producers: ProducerStates | None,
        now_ms: int,
    ) -> None:
        """A batch was not taken; one that the client will not send again is left alone.

        `producers` is what the partition's log knows of them, None without a log."""
        if code not in PASSING or records is None or len(records) < BATCH_OVERHEAD:
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        key = place, producer_id
        held = self._missing(key, epoch, producers, now_ms)
        if producer_id >= 0 and (held is None or not is_behind(sequence, held.sequence)):
            self.first.pop(key, None)
            self.first[key] = Refused(epoch, sequence, now_ms, code)
        while self.first:
            oldest = next(iter(self.first))
            if len(self.first) <= MOST_HELD and _is_fresh(self.first[oldest], now_ms):
                break
            del self.first[oldest]

    def check(
        self, place: Place, records: Buffer | None, producers: ProducerStates, now_ms: int
    ) -> None:
        """Raises ApiError for a batch behind one that was refused, as that one was."""
        if records is None or len(records) < BATCH_OVERHEAD:
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        held = self._missing((place, producer_id), epoch, producers, now_ms)
        if held is not None and is_behind(sequence, held.sequence):
            raise ApiError(held.code, "The producer's batch before this one was refused.")

    def _missing(
        self, key: tuple[Place, int], epoch: int, producers: ProducerStates | None, now_ms: int
    ) -> Refused | None:
        """What the log still lacks of this producer's epoch; forgets what it has by now."""
        held = self.first.get(key)
        if held is None or held.epoch != epoch:
            return None
        is_there = producers is not None and producers.reached(key[1], epoch, held.sequence)
        if _is_fresh(held, now_ms) and not is_there:
            return held
        del self.first[key]
        return None


def _is_fresh(held: Refused, now_ms: int) -> bool:
    return 0 <= now_ms - held.since_ms < HELD_UP_MS
