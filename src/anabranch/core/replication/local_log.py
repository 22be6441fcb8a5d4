"""What a replica answers a request from the log on this node's disk.

What: the half of `core.partition.Partition` that needs nothing but the log. Rule kept: nothing is
decided here. Not here: who leads, what is committed (`replica`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.partition import Partition

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.types import Buffer, Piece


class LocalLog(Partition):
    """A partition whose records lie in `log`."""

    __slots__ = ("log",)

    log: Log

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def local_start_offset(self) -> int:
        return self.log.local_start_offset

    @property
    def remote_end_offset(self) -> int:
        return self.log.remote_end_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def producers(self) -> ProducerStates:
        return self.log.producers

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        return self.log.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)

    def lend(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Piece:
        return self.log.lend(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        return self.log.aborted_transactions(first, upto, blocking=False)

    def epoch_of(self, offset: int) -> int:
        return self.log.epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.log.end_offset_for_epoch(epoch)

    def offset_for_timestamp(self, timestamp: int, since: int = 0) -> TimestampOffset | None:
        return self.log.offset_for_timestamp(timestamp, upto=self.log.end_offset)

    def max_timestamp_offset(self, since: int = 0) -> TimestampOffset | None:
        return self.log.max_timestamp_offset(upto=self.log.end_offset)

    @property
    def may_shorten(self) -> bool:
        config = self.log.config
        return config.deletes or not config.compacted

    def delete_before(self, offset: int) -> None:
        self.log.delete_records_before(offset)
