"""One partition's log as its parts see it: segments, offsets, tables, and what is not safe yet.

What: the state that every part of a log shares, with the few lookups that all of them make. The
parts (`appends`, `reader`, `segment_roll`, `truncation`, `recovery`, `sync_round` …) work on it;
`Log` in `log.py` is the same object with everything that others may call. Rule kept: this file
imports none of the parts, so that each of them can be read, and tested, alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.files import ColdRead, Files
from anabranch.core.log.indexes import AbortedRange, OffsetIndex, TimeIndex
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.room import Room
from anabranch.core.log.scan import BadBatch
from anabranch.core.log.segment import IndexCache, Segment
from anabranch.core.types import TopicId, TopicPartition

NOT_NOTED = -1
"""No checkpoint has the log start: it is where the first segment begins."""
HINTS_KEPT = 64  # readers of one partition that are each found without a search

BeforeTruncation: TypeAlias = Callable[[TopicPartition, int], None]
"""Called with the end that a log is about to be cut to: lower what was checkpointed above it."""


def keep_checkpoints(_partition: TopicPartition, _end_offset: int) -> None:
    """For a log without a stored recovery point."""


class Recovery(NamedTuple):
    """What opening found: cut bytes were at or after the recovery point."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    rebuilt_indexes: int = 0


class LogState:
    """What a log is: its files, and what is known of them.

    `start_offset` is where the log begins for its readers. `local_start_offset` is the first offset
    that lies here: where `config.has_remote`, what is older may be in another store; elsewhere both
    starts are equal.
    `end_offset` is the next offset; `flushed_offset` is the recovery point: everything before it
    was synced. `decided_offset` is where the first transaction began that is open there, or the
    same: no power cut undoes what was decided of records before it. `fault`, once set, is raised by
    every call: the partition is offline.
    """

    __slots__ = (
        "aborted",
        "active",
        "before_truncation",
        "compacted_to",
        "config",
        "cuts",
        "decided_ceiling",
        "decided_offset",
        "deleted",
        "end_offset",
        "epochs",
        "fault",
        "files",
        "flushed_offset",
        "folder",
        "hints",
        "index_cache",
        "is_marked",
        "is_named",
        "local_start_offset",
        "lost_indexes",
        "lost_offsets",
        "names_syncing",
        "names_unsynced",
        "noted_start_offset",
        "producers",
        "recovery",
        "replaced",
        "room",
        "segments",
        "segments_syncing",
        "size_bytes",
        "snapshot_due_bytes",
        "snapshots_within",
        "start_is_assumed",
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
        before_truncation: BeforeTruncation = keep_checkpoints,
    ) -> None:
        self.files = files
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.index_cache = index_cache if index_cache is not None else IndexCache()
        self.before_truncation = before_truncation
        self.segments: list[Segment] = []
        self.active: Segment | None = None
        self.start_offset = self.local_start_offset = self.end_offset = 0
        self.flushed_offset = self.sync_ceiling = 0
        self.noted_start_offset = NOT_NOTED
        """The log start that a checkpoint has. Where another store holds the older part, no file's
        name tells it."""
        self.start_is_assumed = False
        """No checkpoint told the log start, and another store may hold an older part: it is taken
        for 0 until that store's facts are known."""
        self.decided_offset = self.decided_ceiling = 0
        self.size_bytes = 0
        self.snapshot_due_bytes = 0
        """The size of the active segment from which its next snapshot of producers is due."""
        self.snapshots_within: list[int] = []
        """Offsets of the newest snapshots of producers that were written within a segment."""
        self.replaced: list[Segment] = []
        """Segments whose records compaction has put into others, while their files are in place."""
        self.cuts = 0
        """How often its end was cut: a closed segment may be another one since."""
        self.compacted_to = 0
        """How far the log was compacted here: records before it may have superseded others."""
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.aborted: dict[int, list[AbortedRange]] = {}
        """Base offset of a segment -> its aborted ranges, once they are loaded."""
        self.lost_indexes: dict[int, ColdRead] = {}
        """Base offset of a segment -> the LostIndex that makes its transaction index again."""
        self.lost_offsets: dict[int, ColdRead] = {}
        """Base offset of a segment -> the LostOffsets that makes its other indexes again."""
        self.hints: dict[int, tuple[Segment, int]] = {}
        self.fault: StorageFault | None = None
        self.room = Room()
        """Of the folder that it lies in."""
        self.recovery = Recovery()
        self.unsynced_segments: list[tuple[int, Segment]] = []
        """(end offset, segment) of rolled segments whose sync is due."""
        self.segments_syncing: tuple[tuple[int, Segment], ...] = ()
        """Those of them that the round under way covers: one that was rolled since is due still,
        with what lies beside it, also where the round reaches its end."""
        self.unsynced_since_ms = -1
        self.names_unsynced = False
        self.names_syncing = False
        """Whether a round has begun that covers names, and has not ended."""
        self.is_marked = False
        """Whether the mark of `failed_sync` is there."""
        self.is_named = True
        """Whether `partition.metadata` is safe, or in the next round."""
        self.deleted: list[tuple[int, str]] = []
        """(when, path) of files to remove."""

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
                segment.load_indexes(
                    self.files, self.config.index_interval_bytes, self.end_of(segment)
                )
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
        """Where a read_committed reader must stop: before the first undecided transaction, of which
        the first records may have been deleted."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable < 0:
            return high_watermark
        return min(max(unstable, self.start_offset), high_watermark)

    def decided_before(self, offset: int) -> int:
        """Where the first open transaction began, or the offset where none is open."""
        return next(iter(self.producers.open_transactions.values()), offset)

    def synced(self, end_offset: int) -> None:
        """The targets of `sync_target` are on stable storage."""
        self.names_syncing = False
        reached = min(end_offset, self.sync_ceiling)
        self.flushed_offset = max(self.flushed_offset, reached)
        self.decided_offset = max(self.decided_offset, self.decided_ceiling)
        covered, self.segments_syncing = self.segments_syncing, ()
        self.unsynced_segments = [
            one for one in self.unsynced_segments if one[0] > reached or one not in covered
        ]

    def fail(self, fault: StorageFault) -> None:
        """Take the log offline: its folder refused a write or a sync."""
        if self.fault is None:
            self.fault = fault


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
