"""The older part of a partition, where a store other than this node's disk holds it.

What: `Tail`, what a composite asks of such a part: its end, reads, and the lookups that a log
answers. Rules kept: only committed records are in a tail; what is not in memory raises a ColdRead
that names who brings it; a store that fails raises ApiError, never StorageFault, which
takes the partition's own disk offline; a tail may hold, too, what lies on the disk, and ends where
it has no gap. Source: KIP-405. Not here: which part is asked (`composite.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from anabranch.core.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
    from anabranch.core.types import Buffer

UNKNOWN_EPOCH = -1


class Tail(Protocol):
    """Offsets before `end_offset`. All calls are for the loop's thread and may raise ColdRead."""

    @property
    def end_offset(self) -> int:
        """The offset after its last record; 0 for none."""

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        """As `Partition.read`. Raises OFFSET_OUT_OF_RANGE for what it does not hold."""

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Those with records in `[first, upto)`, as far as their markers are in this tail."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of an offset, -1 when unknown."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that has records here, and where the next one begins, or
        this tail ends; (-1, -1) when unknown."""

    def offset_for_timestamp(self, timestamp: int, first: int) -> TimestampOffset | None:
        """The first record from offset `first` on that is not older."""

    def max_timestamp_offset(self, first: int) -> TimestampOffset | None:
        """The record from offset `first` on with the largest timestamp, the first one of equals."""


class NoTail(Tail):
    """There is no older part."""

    @property
    def end_offset(self) -> int:
        return 0

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        return []

    def epoch_of(self, offset: int) -> int:
        return UNKNOWN_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return UNKNOWN_EPOCH, UNKNOWN_EPOCH

    def offset_for_timestamp(self, timestamp: int, first: int) -> TimestampOffset | None:
        return None

    def max_timestamp_offset(self, first: int) -> TimestampOffset | None:
        return None


class UnknownTail(Tail):
    """There may be an older part, which is not known yet: a client asks again soon, and does not
    take it that its offset is gone."""

    def _refuse(self) -> ApiError:
        why = "It is not known yet which of this partition's records are in remote storage."
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    @property
    def end_offset(self) -> int:
        raise self._refuse()

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        raise self._refuse()

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        raise self._refuse()

    def epoch_of(self, offset: int) -> int:
        raise self._refuse()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        raise self._refuse()

    def offset_for_timestamp(self, timestamp: int, first: int) -> TimestampOffset | None:
        raise self._refuse()

    def max_timestamp_offset(self, first: int) -> TimestampOffset | None:
        raise self._refuse()


UNKNOWN_TAIL: Tail = UnknownTail()
NO_TAIL: Tail = NoTail()
