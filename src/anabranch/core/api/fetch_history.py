"""What a log's history means to one who reads it: where both part, and which transactions failed.

The rule it keeps: a reader whose last epoch ended elsewhere gets no records, only the place where
his history leaves ours. Source: KIP-392, KIP-595, KIP-98. Not here: reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import Loan
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.fetch import AbortedTransaction, EpochEndOffset

if TYPE_CHECKING:
    from anabranch.core.api.fetch_sessions import Wanted
    from anabranch.core.partition.protocol import Partition
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import Buffer


def divergence(partition: Partition, wanted: Wanted) -> EpochEndOffset | None:
    """Where the reader's history leaves ours (KIP-595), None when it does not.

    Raises OFFSET_OUT_OF_RANGE when nothing is known of its epoch.
    """
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def aborted_within(
    partition: Partition, records: Buffer | Loan | tuple[Buffer, ...], offset: int, limit: int
) -> list[AbortedTransaction]:
    """Transactions that were aborted and have records in what is returned. What was lent says
    where it ends, so that nothing of it is read. Of a diskless topic that was classic, a remote
    segment is one piece, and several pieces are of objects."""
    if isinstance(records, Loan):
        end = records.end_offset
        ranges = partition.aborted_transactions(offset, end)
    else:
        ranges = partition.aborted_transactions(offset, limit)
        if not ranges:
            return []
        if isinstance(records, tuple):
            records = records[0] if len(records) == 1 else b""
        end = max((header.next_offset for _, header in walk(records)), default=limit)
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in ranges
        if entry.first_offset < end
    ]


def is_idle(replica: Replica, wanted: Wanted) -> bool:
    """Whether a follower has all of a partition that is led here, and was told where it starts.

    Raises OFFSET_OUT_OF_RANGE as `divergence` does."""
    log = replica.log
    if (
        wanted.fetch_offset != log.end_offset
        or wanted.told_log_start != log.start_offset
        or wanted.leader_epoch != replica.leader_epoch
        or wanted.topic_id != replica.topic_id
        or not replica.is_leader
        or log.fault is not None
    ):
        return False
    epoch = wanted.last_fetched_epoch
    return epoch in (-1, log.epochs.latest) or divergence(replica, wanted) is None
