"""One partition's log: what was appended, in Kafka's files, and what of it is safe.

What: append, read, look up, truncate, expire, and say what must be synced. Why here: every promise
about acknowledged records ends in these files. Rules kept: offsets only grow; a batch is in the
log whole or not at all; what was flushed is served or the partition is offline, never silently
shorter; a failed write or sync is not tried again on the same files. All calls are for one thread;
only `Syncable.sync` and `File.warm` may run elsewhere.

The parts: `appending` and `incoming` (checks), `reader` and `lookup` (finding), `recovery`
(opening), `shortening` (truncation, retention), `segment` and `indexes` (files), `producers`,
`epochs`. Not here: the high watermark (`core/replication`), compaction, remote segments.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from anabranch.core.errors import ApiError, CorruptLog, ErrorCode, StorageFault
from anabranch.core.log import appending, lookup, recovery, shortening
from anabranch.core.log.appending import AppendResult
from anabranch.core.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    format_epochs,
    format_partition_metadata,
)
from anabranch.core.log.config import LogConfig
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.files import DiskFull, Files, Syncable
from anabranch.core.log.indexes import AbortedRange, OffsetIndex, TimeIndex
from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
from anabranch.core.log.producer_snapshot import encode_snapshot
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.reader import HINTS_KEPT, read_batches
from anabranch.core.log.room import Room
from anabranch.core.log.scan import BadBatch
from anabranch.core.log.segment import SNAPSHOT, IndexCache, Segment, offset_name
from anabranch.core.log.shortening import ShorterFirst, keep_checkpoints
from anabranch.core.log.syncing import close_cleanly, sync_names, sync_targets
from anabranch.core.types import Buffer, Offset, TopicId, TopicPartition

NO_TIMESTAMP = -1


class Recovery(NamedTuple):
    """What opening found: cut bytes were at or after the recovery point."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    rebuilt_indexes: int = 0


class Log:
    """One partition's log.

    `end_offset` is the next offset; `flushed_offset` is the recovery point: everything before it
    was synced. `fault`, once set, is raised by every call: the partition is offline.
    """

    __slots__ = (
        "aborted",
        "active",
        "config",
        "deleted",
        "end_offset",
        "epochs",
        "fault",
        "files",
        "flushed_offset",
        "folder",
        "hints",
        "index_cache",
        "is_named",
        "names_syncing",
        "names_unsynced",
        "producers",
        "recovery",
        "room",
        "segments",
        "shorter_first",
        "size_bytes",
        "start_offset",
        "sync_ceiling",
        "topic_id",
        "topic_partition",
        "unsynced_segments",
        "unsynced_since_ms",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        index_cache: IndexCache | None = None,
        shorter_first: ShorterFirst = keep_checkpoints,
    ) -> None:
        self.files = files
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.index_cache = index_cache if index_cache is not None else IndexCache()
        self.shorter_first = shorter_first
        self.segments: list[Segment] = []
        self.active: Segment | None = None
        self.start_offset = self.end_offset = self.flushed_offset = self.sync_ceiling = 0
        self.size_bytes = 0
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.aborted: dict[int, list[AbortedRange]] = {}
        """Base offset of a segment -> its aborted ranges, once they are loaded."""
        self.hints: dict[int, tuple[Segment, int]] = {}
        self.fault: StorageFault | None = None
        self.room = Room()
        """Of the folder that it lies in."""
        self.recovery = Recovery()
        self.unsynced_segments: list[tuple[int, Segment]] = []
        """(end offset, segment) of rolled segments whose sync is due."""
        self.unsynced_since_ms = -1
        self.names_unsynced = False
        self.names_syncing = False
        """Whether a round has begun that covers names, and has not ended."""
        self.is_named = True
        """Whether `partition.metadata` is safe, or in the next round."""
        self.deleted: list[tuple[int, str]] = []
        """(when, path) of files to remove."""

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
        shorter_first: ShorterFirst = keep_checkpoints,
    ) -> Log:
        """Make the folder and its `partition.metadata`; segment files appear with the first
        append."""
        files.make_dirs(folder)
        files.write_atomic(
            f"{folder}/{PARTITION_METADATA}", format_partition_metadata(topic_id), sync=False
        )
        log = cls(files, folder, topic_partition, topic_id, config, index_cache, shorter_first)
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
        log_start_offset: int = 0,
        clean: bool = False,
        clean_point: int = 0,
        index_cache: IndexCache | None = None,
        shorter_first: ShorterFirst = keep_checkpoints,
    ) -> Log:
        """Open a folder; `clean` when it was closed in order, else everything from the recovery
        point on is checked. Compaction went as far as `clean_point`. Raises CorruptLog for rot
        before the recovery point."""
        log = cls(files, folder, topic_partition, topic_id, config, index_cache, shorter_first)
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

        `client=False` is for one batch that this node has just made: it is not checked. Raises
        ApiError with Kafka's code, DiskFull (the log is as before), StorageFault (it is
        offline)."""
        return appending.as_leader(self, records, leader_epoch, now_ms, client=client)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches as the leader wrote them; an incomplete one is left out."""
        return appending.as_follower(self, records, now_ms)

    def assign_leader_epoch(self, epoch: int) -> None:
        """A new leader calls it with its epoch, which starts at the log's end; written with the
        data."""
        self.epochs.assign(epoch, self.end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note the epoch of an appended batch, and save the table when that is news."""
        epochs = self.epochs
        if epochs.latest != epoch:
            epochs.assign(epoch, start_offset)
        if epochs.unsaved:
            self.save_epochs(sync=False)

    def save_epochs(self, *, sync: bool) -> None:
        """Write `leader-epoch-checkpoint`; a full disk leaves it for the next time."""
        path = f"{self.folder}/{LEADER_EPOCHS}"
        try:
            self.files.write_atomic(path, format_epochs(self.epochs.entries), sync=sync)
        except DiskFull:
            return
        except StorageFault as fault:
            self.fault = fault
            raise
        self.epochs.unsaved = False
        self.epochs.unsynced = not sync
        if not sync:
            self.names_unsynced = True  # a power cut may bring the table before it back

    # Rolling

    def roll(self, now_ms: int, *, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin one at the log's end; or at `base_offset`, for a batch
        so far behind it that no index reaches there."""
        base_offset = self.end_offset if base_offset is None else base_offset
        segment = Segment(self.files, self.folder, base_offset, now_ms)
        try:
            if self.active is not None:
                # Segments must not come back without the one before: no reader could tell that
                # from retention. After the first roll a sync round has usually done it.
                sync_names(self)
            segment.file.truncate(0)
            if self.active is not None:
                self.close_segment(self.active)
        except DiskFull:
            segment.file.close()
            self.files.remove(segment.file.path)  # the log may go on without it, past its offset
            raise
        except StorageFault as fault:
            self.fault = fault
            raise
        self.segments.append(segment)
        self.active = segment
        self.names_unsynced = True
        return segment

    def close_segment(self, segment: Segment) -> None:
        """Write what belongs beside a segment that gets no more batches, and have it synced.

        All of it can be made again from the batches, so a full disk does not stop a roll."""
        self.unsynced_segments.append((self.end_offset, segment))
        try:
            segment.save_indexes(self.files)
            self.index_cache.keep(segment)
            self.save_aborted(segment)
            self.save_snapshot()
        except DiskFull:
            return

    def save_snapshot(self) -> None:
        """Write the producer state at the log's end."""
        self.files.write_atomic(
            f"{self.folder}/{offset_name(self.end_offset, SNAPSHOT)}",
            encode_snapshot(self.producers),
            sync=False,
        )

    def save_aborted(self, segment: Segment) -> None:
        """Write a segment's transaction index; an empty one says that nothing was aborted."""
        lookup.save_aborted(self, segment)

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll an idle segment that is older than `segment.ms`; True when it was."""
        segment = self.active
        if segment is None or segment.size == 0 or self.fault is not None:
            return False
        config = self.config
        if now_ms - segment.created_ms <= config.segment_ms - config.segment_jitter_ms:
            return False
        self.roll(now_ms)
        return True

    # Reading

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        """Whole batches from the one that holds `offset`, all of them before `upto`; b"" for none.

        More than `max_bytes` only for a first batch that is larger, with `at_least_one`. Raises
        ApiError (OFFSET_OUT_OF_RANGE), ColdRead, CorruptLog."""
        if self.fault is not None:
            raise self.fault
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is not within "
                f"[{self.start_offset}, {end_offset}].",
            )
        if offset == end_offset:
            if self.active is not None:
                self.remember(offset, self.active, self.active.size)
            return b""
        if upto > end_offset:
            upto = end_offset
        for segment in self.segments[self.segment_index(offset) :]:
            if segment.base_offset >= upto:
                break
            found = read_batches(self, segment, offset, max_bytes, upto, at_least_one)
            if found is not None:
                return found
        return b""

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Note where a reader of this offset will find it."""
        hints = self.hints
        hints.pop(offset, None)
        hints[offset] = (segment, position)
        if len(hints) > HINTS_KEPT:
            del hints[next(iter(hints))]

    def segment_index(self, offset: int) -> int:
        """Index of the segment that holds an offset, -1 when it lies before all of them."""
        segments = self.segments
        if segments and offset >= segments[-1].base_offset:
            return len(segments) - 1
        return bisect_right(segments, offset, key=_base_offset) - 1

    def end_of(self, segment: Segment) -> int:
        """The offset after a segment's last."""
        if segment is self.active:
            return self.end_offset
        following = self.segment_index(segment.base_offset) + 1
        return (
            self.segments[following].base_offset
            if following < len(self.segments)
            else self.end_offset
        )

    def offset_index(self, segment: Segment) -> OffsetIndex:
        """A segment's offset index, loaded or rebuilt if need be."""
        self._load_indexes(segment)
        assert segment.offset_index is not None
        return segment.offset_index

    def time_index(self, segment: Segment) -> TimeIndex:
        """A segment's time index, loaded or rebuilt if need be."""
        self._load_indexes(segment)
        assert segment.time_index is not None
        return segment.time_index

    def _load_indexes(self, segment: Segment) -> None:
        if segment is self.active:
            return
        if segment.offset_index is None:
            try:
                segment.load_indexes(self.files, self.config.index_interval_bytes)
            except BadBatch as bad:
                self.fault = self.corrupt(segment, bad.position, bad.why)
                raise self.fault from None
        self.index_cache.keep(segment)

    def corrupt(self, segment: Segment, position: int, why: str) -> CorruptLog:
        """The fault that names where a segment is not what was written."""
        last = self.end_of(segment) - 1
        return CorruptLog(
            f"{segment.file.path}: {why} (at position {position}, within offsets "
            f"{segment.base_offset} to {last}). The partition is offline: restore the file or "
            "remove the partition's folder to fetch it from another replica.",
            path=segment.file.path,
            position=position,
            first_offset=segment.base_offset,
            last_offset=last,
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a read_committed reader must stop: before the first undecided transaction."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable < 0 else min(unstable, high_watermark)

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `[first, upto)`, in order."""
        return lookup.aborted_transactions(self, first, upto)

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

    def truncate_to(self, offset: int) -> Offset:
        """Cut every batch that ends at or after `offset`; the new end, on stable storage."""
        return shortening.truncate_to(self, offset)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and go on at `offset`: the leader's log starts there."""
        shortening.truncate_fully(self, offset)

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start (DeleteRecords); segments that lie before it go with the next
        retention."""
        shortening.raise_start(self, offset)

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the oldest segments by time, size and log start; the paths that will be removed."""
        return shortening.apply_retention(self, now_ms, high_watermark)

    def remove_deleted_files(self, now_ms: int) -> None:
        """Remove files whose delay (`file.delete.delay.ms`) is over."""
        shortening.remove_deleted_files(self, now_ms)

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
        if self.fault is not None:
            raise self.fault
        if self.end_offset <= self.flushed_offset and not self.unsynced_segments:
            return None
        self.sync_ceiling = self.end_offset
        self.unsynced_since_ms = -1
        return Offset(self.end_offset), sync_targets(self)

    def synced(self, end_offset: int) -> None:
        """The targets of `sync_target` are on stable storage."""
        self.names_syncing = False
        reached = min(end_offset, self.sync_ceiling)
        self.flushed_offset = max(self.flushed_offset, reached)
        self.unsynced_segments = [one for one in self.unsynced_segments if one[0] > reached]

    def fail(self, fault: StorageFault) -> None:
        """Take the log offline: its folder refused a write or a sync."""
        if self.fault is None:
            self.fault = fault

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
            "end_offset": self.end_offset,
            "flushed_offset": self.flushed_offset,
            "size_bytes": self.size_bytes,
            "segments": len(self.segments),
            "producers": len(self.producers),
            "recovery": self.recovery._asdict(),
            "offline": str(self.fault) if self.fault is not None else None,
        }


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
