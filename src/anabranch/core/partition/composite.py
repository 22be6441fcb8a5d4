"""A partition in two parts: its newest records in a local log, older ones in a tail.

What: the half of `Partition` that needs nothing but these. Each answer comes from the part that has
the offset: the log from its local start on, the tail before that. Why here: no handler, and no
replica, knows that there are two. Rules kept: nothing about leadership or commits is decided here;
a read of the log makes the calls that it would make without a tail. A record that both hold is read
from the log. Not here: what is committed (`core.replication.replica`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition.protocol import Partition

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.log import Log
    from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.partition.tail import Tail
    from anabranch.core.step import Mailbox
    from anabranch.core.types import Buffer, Piece


class Composite(Partition):
    """A partition whose newest records lie in `log`, and those before its start in `older`."""

    __slots__ = ("log", "older")

    log: Log
    older: Tail

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def local_start_offset(self) -> int:
        return self.log.local_start_offset

    @property
    def remote_end_offset(self) -> int:
        return self.older.end_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def producers(self) -> ProducerStates:
        return self.log.producers

    def failed(self, fault: StorageFault, left: Mailbox) -> None:
        """The log, or its folder, goes offline."""
        left.faults.append((self, fault))

    # Reading.

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        older = self._read_older(offset, max_bytes, upto, at_least_one)
        if older is not None:
            return older
        offset = max(offset, self.log.local_start_offset)
        return self.log.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)

    def lend(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Piece:
        older = self._read_older(offset, max_bytes, upto, at_least_one)
        if older is not None:
            return older
        offset = max(offset, self.log.local_start_offset)
        return self.log.lend(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)

    def _read_older(
        self, offset: int, max_bytes: int, upto: int, at_least_one: bool
    ) -> Buffer | None:
        """What the tail has from an offset on; None where the log goes on: at its start, or before
        it, where compaction has left nothing up to there."""
        log = self.log
        if offset >= log.local_start_offset:
            return None
        if offset < log.start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        found = self.older.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)
        is_answer = len(found) or not at_least_one or upto <= log.local_start_offset
        return found if is_answer else None

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        """What began in the tail may have been aborted in the log, and a marker that
        both hold counts once."""
        found = self.log.aborted_transactions(first, upto, blocking=False)
        if first < self.log.local_start_offset:
            older = self.older.aborted_transactions(first, upto)
            found = list(dict.fromkeys((*older, *found)))
        return found

    # Looking up.

    def epoch_of(self, offset: int) -> int:
        """A copy that began in the middle of the log has no older epochs."""
        epoch = self.log.epochs.epoch_of(offset)
        if epoch < 0 and offset < self.log.local_start_offset:
            return self.older.epoch_of(offset)
        return epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        log = self.log
        if log.start_offset < log.local_start_offset and epoch < log.epochs.earliest:
            known, end_offset = self.older.end_offset_for_epoch(epoch)
            if known >= 0 and end_offset <= log.start_offset:  # all of it was deleted
                return epoch, log.start_offset
            if known >= 0:  # the last epoch of the tail may go on where the table begins, or end
                return known, min(end_offset, log.epochs.begin_offset, log.end_offset)
        return log.end_offset_for_epoch(epoch)

    def offset_for_timestamp(self, timestamp: int, since: int = 0) -> TimestampOffset | None:
        log = self.log
        if log.start_offset < log.local_start_offset:
            found = self.older.offset_for_timestamp(timestamp, log.start_offset)
            if found is not None and found.offset < log.local_start_offset:
                return found
        return log.offset_for_timestamp(timestamp, upto=log.end_offset)

    def max_timestamp_offset(self, since: int = 0) -> TimestampOffset | None:
        log = self.log
        newest = log.max_timestamp_offset(upto=log.end_offset)
        if log.start_offset < log.local_start_offset:
            older = self.older.max_timestamp_offset(log.start_offset)
            if older is not None and (newest is None or older.timestamp >= newest.timestamp):
                return older
        return newest

    # Shortening.

    @property
    def may_shorten(self) -> bool:
        config = self.log.config
        return config.deletes or not config.compacted

    def delete_before(self, offset: int) -> None:
        self.log.delete_records_before(offset)
