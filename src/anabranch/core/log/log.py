"""One partition's log: signatures first; bodies follow."""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import Files, Syncable
from anabranch.core.types import Buffer, Offset, TopicId, TopicPartition


class AppendResult(NamedTuple):
    """Where a batch landed; `duplicate` when it had been appended before (the first place is given)."""

    first_offset: int
    last_offset: int  # inclusive
    log_append_time_ms: int  # -1 unless the topic uses LogAppendTime
    start_offset: int
    duplicate: bool


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Recovery(NamedTuple):
    """What opening found: cut bytes were at or after the recovery point."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    rebuilt_indexes: int = 0


class Log:
    """One partition's log. All calls are for one thread; only `Syncable.sync` may run elsewhere.

    Attributes to read: topic_partition, topic_id, folder, config (assignable), start_offset,
    end_offset (next offset), flushed_offset (recovery point), size_bytes, recovery, producers,
    epochs, fault (StorageFault | None: when set every call raises it).
    """

    @classmethod
    def open(cls, files: Files, folder: str, topic_partition: TopicPartition, topic_id: TopicId,
             config: LogConfig, *, now_ms: int, recovery_point: int = 0, log_start_offset: int = 0,
             clean: bool = False) -> Log:
        """Open an existing folder; raises CorruptLog for rot before the recovery point."""
        ...

    @classmethod
    def create(cls, files: Files, folder: str, topic_partition: TopicPartition, topic_id: TopicId,
               config: LogConfig, *, now_ms: int) -> Log:
        """Make the folder and partition.metadata; segment files appear with the first append."""
        ...

    def append_as_leader(self, records: Buffer, *, leader_epoch: int, now_ms: int,
                         client: bool = True) -> AppendResult:
        """Append whole batches; `records` is patched in place. `client=False`: control batches allowed."""
        ...

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches with their offsets and epochs; a partial tail is left out."""
        ...

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        """Whole batches from the one that holds `offset`, all before `upto`. May raise ColdRead."""
        ...

    def last_stable_offset(self, high_watermark: int) -> int: ...
    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]: ...
    def offset_for_timestamp(self, timestamp: int, *, upto: int) -> TimestampOffset | None: ...
    def max_timestamp_offset(self, *, upto: int) -> TimestampOffset | None: ...
    def assign_leader_epoch(self, epoch: int) -> None:
        """A new leader calls it with its epoch: the epoch starts at the log's end."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""
        ...

    def truncate_to(self, offset: int) -> Offset: ...
    def truncate_fully(self, offset: int) -> None: ...
    def delete_records_before(self, offset: int) -> None: ...
    def roll_if_due(self, now_ms: int) -> bool: ...
    def apply_retention(self, now_ms: int, high_watermark: int) -> list[str]: ...
    def remove_deleted_files(self, now_ms: int) -> None: ...
    def sync_due(self, now_ms: int) -> bool:
        """A segment was rolled, or flush.interval.* says so."""
        ...

    def sync_target(self) -> tuple[Offset, tuple[Syncable, ...]] | None:
        """What to sync (in a thread, one round a log at a time), then call `synced`; None: nothing."""
        ...

    def synced(self, end_offset: int) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    def close(self, *, clean: bool) -> None:
        """Write indexes and the producer snapshot, sync when clean, give handles back."""
        ...
