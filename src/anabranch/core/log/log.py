"""One partition's log: what was appended, in Kafka's files, and what of it is safe.

What: append, read, look up, truncate, expire, and say what must be synced. Why here: every promise
about acknowledged records ends in these files. Rules kept: offsets only grow; a batch is in the
log whole or not at all; what was flushed is served or the partition is offline, never silently
shorter; a failed write or sync is not tried again on the same files. All calls are for one thread;
only `Syncable.sync` and `warm` of a ColdRead or a file may run elsewhere.

The parts: `appends` and `validation` (checks), `reader` and `lookup` (finding), `recovery`
(opening), `truncation` (truncation, retention), `segment` and `indexes` (files), `producers`,
`epochs`. Not here: the high watermark (`core/replication`), compaction, remote segments.
"""

from __future__ import annotations

from typing import Any

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log import (
    appends,
    lookup,
    recovery,
    segment_roll,
    sync_round,
    truncation,
    unreplicated,
)
from anabranch.core.log.appends import AppendResult
from anabranch.core.log.checkpoints import (
    PARTITION_METADATA,
    format_partition_metadata,
)
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import Files, Syncable
from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
from anabranch.core.log.reader import read_batches
from anabranch.core.log.segment import IndexCache, Segment
from anabranch.core.log.state import (
    NOT_NOTED,
    BeforeTruncation,
    LogState,
    Recovery,
    keep_checkpoints,
)
from anabranch.core.log.sync_round import close_cleanly
from anabranch.core.log.truncation import Beginning
from anabranch.core.types import Buffer, Loan, Offset, Piece, TopicId, TopicPartition


class Log(LogState):
    """One partition's log, with everything that others may call. Offsets: see `LogState`."""

    __slots__ = ()

    @classmethod
    def create(
        cls,
        files: Files,
        folder: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        *,
        now_ms: int,
        index_cache: IndexCache | None = None,
        before_truncation: BeforeTruncation = keep_checkpoints,
    ) -> Log:
        """Make the folder and its `partition.metadata`; segment files appear with the first
        append."""
        files.make_dirs(folder)
        files.write_atomic(
            f"{folder}/{PARTITION_METADATA}", format_partition_metadata(topic_id), sync=False
        )
        log = cls(files, folder, topic_partition, topic_id, config, index_cache, before_truncation)
        log.names_unsynced, log.is_named = True, False
        return log

    @classmethod
    def open(
        cls,
        files: Files,
        folder: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = NOT_NOTED,
        clean: bool = False,
        clean_point: int = 0,
        index_cache: IndexCache | None = None,
        before_truncation: BeforeTruncation = keep_checkpoints,
    ) -> Log:
        """Open a folder; `clean` when it was closed in order, else everything from the recovery
        point on is checked. Compaction went as far as `clean_point`. Raises CorruptLog for rot
        before the recovery point."""
        log = cls(files, folder, topic_partition, topic_id, config, index_cache, before_truncation)
        log.compacted_to = clean_point
        log.recovery = Recovery(
            *recovery.load(
                log,
                now_ms=now_ms,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean=clean,
                clean_point=clean_point,
            )
        )
        return log

    # Appending

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, client: bool = True
    ) -> AppendResult:
        """Give whole batches the next offsets and append them; a writable buffer is patched.

        `client=False` is for batches that this node has just made: they are not checked. Raises
        ApiError with Kafka's code, DiskFull (the log is as before), StorageFault (it is
        offline)."""
        return appends.as_leader(self, records, leader_epoch, now_ms, client=client)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches as the leader wrote them; an incomplete one is left out."""
        return appends.as_follower(self, records, now_ms)

    def assign_leader_epoch(self, epoch: int) -> None:
        """A new leader calls it with its epoch, which starts at the log's end; written with the
        data."""
        self.epochs.assign(epoch, self.end_offset)

    # Rolling

    def roll(self, now_ms: int) -> Segment:
        """Close the active segment and begin one at the log's end."""
        return segment_roll.roll(self, now_ms)

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll an idle segment that is older than `segment.ms`; True when it was."""
        return segment_roll.roll_if_due(self, now_ms)

    # Reading

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        """Whole batches from the one that holds `offset`, all of them before `upto`; b"" for none.

        More than `max_bytes` only for a first batch that is larger, with `at_least_one`. Raises
        ApiError (OFFSET_OUT_OF_RANGE), ColdRead, CorruptLog."""
        found = self._find(offset, max_bytes, upto, at_least_one, lends=False)
        assert not isinstance(found, Loan)
        return found

    def lend(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Piece:
        """As `read`, for callers that only send batches. They must be committed: what may yet be
        truncated is not lent."""
        return self._find(offset, max_bytes, upto, at_least_one, lends=True)

    def _find(
        self, offset: int, max_bytes: int, upto: int, at_least_one: bool, *, lends: bool
    ) -> Piece:
        if self.fault is not None:
            raise self.fault
        end_offset = self.end_offset
        if not self.local_start_offset <= offset <= end_offset:
            raise self._out_of_range(offset)
        if offset == end_offset:
            if self.active is not None:
                self.remember(offset, self.active, self.active.size)
            return b""
        if upto > end_offset:
            upto = end_offset
        for segment in self.segments[max(0, self.segment_index(offset)) :]:
            if segment.base_offset >= upto:
                break
            found = read_batches(self, segment, offset, max_bytes, upto, at_least_one, lends=lends)
            if found is not None:
                return found
        return b""

    def _out_of_range(self, offset: int) -> ApiError:
        if self.start_offset <= offset < self.local_start_offset:
            return ApiError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"Offset {offset} of {self.topic_partition} is in remote storage; the local log "
                f"starts at {self.local_start_offset}.",
            )
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.topic_partition} is not within "
            f"[{self.start_offset}, {self.end_offset}].",
        )

    def aborted_transactions(
        self, first: int, upto: int, *, blocking: bool = True
    ) -> list[AbortedTransaction]:
        """Aborted transactions with records in `[first, upto)`, in order. Without `blocking` raises
        ColdRead rather than rebuild an index of a closed segment."""
        return lookup.aborted_transactions(self, first, upto, blocking=blocking)

    def offset_for_timestamp(self, timestamp: int, *, upto: int) -> TimestampOffset | None:
        """The first record before `upto` that is not older; None when there is none."""
        return lookup.offset_for_timestamp(self, timestamp, upto)

    def max_timestamp_offset(self, *, upto: int) -> TimestampOffset | None:
        """The newest record by timestamp, the first one of equals."""
        return lookup.max_timestamp_offset(self, upto)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""
        return self.epochs.end_offset(epoch, self.end_offset)

    # Shortening

    def recall_unreplicated(self, high_watermark: int) -> None:
        """Find again which transactions ended at or above the high watermark: readers of committed
        records stop before them. For a log that was just opened."""
        unreplicated.recall_unreplicated(self, high_watermark)

    def truncate_to(self, offset: int) -> Offset:
        """Cut every batch that ends at or after `offset`; the new end, on stable storage."""
        return truncation.truncate_to(self, offset)

    def truncate_fully(
        self, offset: int, start_offset: int | None = None, beginning: Beginning | None = None
    ) -> None:
        """Drop everything and go on at `offset`, where the leader's local log starts. The whole log
        begins there too, or earlier, at `start_offset`; `beginning` is what is known there."""
        truncation.truncate_fully(self, offset, start_offset, beginning)

    def local_beginning(self) -> Beginning:
        """What is known where the local part begins. Raises StorageFault."""
        return truncation.beginning_at(self, self.local_start_offset)

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start (DeleteRecords); segments that lie before it go with the next
        retention."""
        truncation.raise_start(self, offset)

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the oldest segments by time, size and log start; the paths that will be removed."""
        return truncation.apply_retention(self, now_ms, high_watermark)

    def drop_local(self, offset: int, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the oldest segments that end at or before `offset`, which another store holds; the
        paths that will be removed. The log still begins for its readers where it did."""
        return truncation.drop_local(self, offset, now_ms, high_watermark)

    def forget_remote(self) -> None:
        """What lies before the local part is in no other store any more: the log begins there for
        its readers, too."""
        self.start_is_assumed = False
        self.start_offset = self.local_start_offset
        self.epochs.cut_start(self.start_offset)

    def settle_start(self, offset: int) -> None:
        """The other store tells where a log begins of which no checkpoint told it."""
        if self.start_is_assumed:
            self.start_is_assumed = False
            self.start_offset = max(self.start_offset, min(offset, self.local_start_offset))
            self.epochs.cut_start(self.start_offset)

    def take_due(self, now_ms: int) -> list[str]:
        """Files whose delay (`file.delete.delay.ms`) is over: the caller removes them."""
        return truncation.take_due(self, now_ms)

    def remove_deleted_files(self, now_ms: int) -> None:
        """Remove files whose delay is over."""
        for path in self.take_due(now_ms):
            self.files.remove(path)

    def expire_producers(self, now_ms: int) -> int:
        """Forget idle producer ids (`producer.id.expiration.ms`)."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # Safety

    def sync_due(self, now_ms: int) -> bool:
        """Whether a segment was rolled or `flush.messages`, `flush.ms` ask for a sync."""
        if self.unsynced_segments:
            return True
        unsynced = self.end_offset - self.flushed_offset
        if unsynced <= 0:
            return False
        config = self.config
        return unsynced >= config.flush_interval_messages or (
            self.unsynced_since_ms >= 0
            and not 0 <= now_ms - self.unsynced_since_ms < config.flush_interval_ms
        )

    def sync_target(self) -> tuple[Offset, tuple[Syncable, ...]] | None:
        """What to sync, in order and in any thread, before `synced(end_offset)`; None: nothing.

        One round a log at a time. When a sync raises, give the fault to `fail`."""
        return sync_round.sync_target(self)

    def close(self, *, clean: bool) -> None:
        """Give handles back; `clean` also writes indexes and producer state and syncs
        everything."""
        if clean and self.fault is None:
            close_cleanly(self)
        for segment in self.segments:
            segment.file.close()

    def statistics(self) -> dict[str, Any]:
        """Figures for people and metrics."""
        return {
            "start_offset": self.start_offset,
            "local_start_offset": self.local_start_offset,
            "end_offset": self.end_offset,
            "flushed_offset": self.flushed_offset,
            "size_bytes": self.size_bytes,
            "segments": len(self.segments),
            "producers": len(self.producers),
            "recovery": self.recovery._asdict(),
            "offline": str(self.fault) if self.fault is not None else None,
        }
