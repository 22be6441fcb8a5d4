"""One folder of `log.dirs`: its partitions, its checkpoints, its clean-shutdown marker.

Rule kept: a checkpoint never promises more than is there. It is lowered on stable storage before a
log gets shorter or a partition begins anew under an old name, and before a log that a power cut
made shorter may grow; it is raised only after syncs. A fault of the folder takes all its logs
offline. Not here: locking the folder (`server/folders.py`) and timers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import (
    CLEAN_POINTS,
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    InvalidCheckpoint,
    format_clean_shutdown,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_offsets,
    parse_partition_metadata,
)
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import LONGEST_NAME_BYTES, Files
from anabranch.core.log.log import Log
from anabranch.core.log.room import Room
from anabranch.core.log.segment import IndexCache
from anabranch.core.log.state import NOT_NOTED
from anabranch.core.log.sync_round import ClosingRound, closing_round
from anabranch.core.types import TopicId, TopicPartition

DELETED_FOLDER = "-delete"
STRAY_FOLDER = "-stray"
FUTURE_FOLDER = "-future"
"""Of a log's copy that is to take its place (`future_log`)."""
MOVED = ".moved"
"""Begins the unique part of a deleted folder's name where another folder has the log now."""
MOST_RETURNING = 1_000
"""Logs taken away whose names are synced together: what is remembered of them stays small."""
DRAFT = ".draft"


class FoundPartition(NamedTuple):
    """A partition's folder; `topic_id` is None when `partition.metadata` cannot be read."""

    topic_partition: TopicPartition
    topic_id: TopicId | None


class Draft(NamedTuple):
    """A checkpoint's next content."""

    name: str
    offsets: dict[TopicPartition, int]


class Due(NamedTuple):
    """What may be removed now: folders of partitions, and files of logs that are there."""

    folders: list[str]
    files: list[str]


class LogFolder:
    """The logs of one folder, by partition.

    `clean` says that the last process closed all logs; the marker is gone once this object exists,
    so that a crash from here on is noticed. `broker_epoch` is what the marker said, else -1.
    `clean_points` (where the next compaction begins) are as checkpointed, `high_watermarks` as they
    were known to the last process, until they are written again.
    """

    def __init__(self, files: Files, path: str) -> None:
        files.make_dirs(path)
        self.files = files
        self.path = path
        self.room = Room()
        self.logs: dict[TopicPartition, Log] = {}
        self.index_cache = IndexCache()
        self._unnamed: set[TopicPartition] = set()
        """Found with a `partition.metadata` that cannot be read, or none."""
        self.interrupted: list[TopicPartition] = []
        """Partitions whose logs were being copied to here when the last process ended."""
        self.fault: StorageFault | None = None
        self.holds_unchecked = False
        """Whether a log that was to be taken away has stayed in its place: it may be as a power cut
        left it, or was closed without a sync."""
        self._deleted: set[TopicPartition] = set()
        """Deleted partitions that a checkpoint may still name."""
        self._may_return: set[TopicPartition] = set()
        """Partitions whose log was taken away, and whose name a power cut may give back to it."""
        self.doomed: list[tuple[int, str]] = []
        """(when, path) of deleted partitions' folders."""
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        self.clean = files.exists(marker)
        self.broker_epoch = parse_clean_shutdown(files.read(marker)) if self.clean else -1
        self._recovery_points = self._read_offsets(RECOVERY_POINTS)
        self._log_starts = self._read_offsets(LOG_STARTS)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARKS)
        self._written_high_watermarks = dict(self.high_watermarks)
        self._replaced_high_watermarks: Mapping[TopicPartition, int] = {}
        """What a power cut may bring back, unless the folder was synced."""
        self._drafts: dict[str, Draft] = {}
        """Those that may take their checkpoints' names when they are written."""
        self.clean_points = self._read_offsets(CLEAN_POINTS)
        if self.clean:
            files.remove(marker)
            files.sync_dir(path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self.files.exists(path):
            return {}
        try:
            return parse_offsets(self.files.read(path))
        except InvalidCheckpoint as problem:
            raise StorageFault(
                f"{path}: {problem}. Remove the file: offsets are then found in the segments."
            ) from None

    def partitions(self) -> list[FoundPartition]:
        """The partitions that have a folder here. Deleted ones that were left are removed, and so
        are copies that were not finished; `interrupted` then names their partitions."""
        found = []
        names = self.files.list(self.path)
        if any(MOVED in name and name.endswith(DELETED_FOLDER) for name in names):
            self.files.sync_dir(self.path)  # else a power cut brings a log back that moved away
        for name in names:
            if name.endswith(FUTURE_FOLDER):
                self._note_interrupted(name)
            if name.endswith((DELETED_FOLDER, FUTURE_FOLDER)) and self.files.is_dir(
                f"{self.path}/{name}"
            ):
                self.files.remove_tree(f"{self.path}/{name}")
                continue
            topic, dash, partition = name.rpartition("-")
            if dash and topic and partition.isascii() and partition.isdigit():
                key = TopicPartition(topic, int(partition))
                topic_id = self._topic_id(f"{self.path}/{name}")
                found.append(FoundPartition(key, topic_id))
                if topic_id is None:
                    self._unnamed.add(key)
        return found

    def _note_interrupted(self, name: str) -> None:
        topic, dash, partition = name.rpartition(".")[0].rpartition("-")
        if dash and topic and partition.isascii() and partition.isdigit():
            self.interrupted.append(TopicPartition(topic, int(partition)))

    def _topic_id(self, folder: str) -> TopicId | None:
        try:
            return parse_partition_metadata(self.files.read(f"{folder}/{PARTITION_METADATA}"))
        except (InvalidCheckpoint, StorageFault):
            return None

    def promised(self, key: TopicPartition) -> int:
        """The offset up to which a partition was synced here, as far as checkpoints say."""
        return 0 if key in self._deleted else self._recovery_points.get(key, 0)

    def open_log(
        self, key: TopicPartition, topic_id: TopicId, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Open a partition that was here when the process started; from now on it is this topic's,
        if its folder does not say whose. Raises CorruptLog."""
        log = Log.open(
            self.files,
            f"{self.path}/{key}",
            key,
            topic_id,
            config,
            now_ms=now_ms,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, NOT_NOTED),
            clean=self.clean,
            clean_point=self.clean_points.get(key, 0),
            index_cache=self.index_cache,
            before_truncation=self._before_truncation,
        )
        log.noted_start_offset = self._log_starts.get(key, NOT_NOTED)
        log.room = self.room
        self._distrust(key, log.end_offset)
        self._lower_high_watermark(key, log.end_offset)
        if key in self._unnamed:
            path = f"{self.path}/{key}/{PARTITION_METADATA}"
            self.files.write_atomic(path, format_partition_metadata(topic_id), sync=True)
            self._unnamed.discard(key)
        self.logs[key] = log
        return log

    def create_log(
        self, key: TopicPartition, topic_id: TopicId, config: LogConfig, *, now_ms: int
    ) -> Log:
        """Begin an empty partition."""
        if self.fault is not None:
            raise self.fault
        if key in self._may_return:
            self.settle_names()
        self._forget_checkpoints(key)
        self._deleted.discard(key)
        log = Log.create(
            self.files,
            f"{self.path}/{key}",
            key,
            topic_id,
            config,
            now_ms=now_ms,
            index_cache=self.index_cache,
            before_truncation=self._before_truncation,
        )
        log.room = self.room
        self.logs[key] = log
        return log

    def delete_log(self, key: TopicPartition, *, unique: str, now_ms: int) -> None:
        """Take a partition away; its folder is renamed now and removed after the delay."""
        log = self.logs.pop(key, None)
        self._deleted.add(key)
        self._drafts.clear()
        delay_ms = LogConfig().file_delete_delay_ms
        if log is not None:
            log.close(clean=False)
            delay_ms = log.config.file_delete_delay_ms
        target = self._aside(key, f".{unique}{DELETED_FOLDER}")
        if self.files.exists(f"{self.path}/{key}"):
            is_named = log is not None and log.is_named and not log.names_syncing
            self._take_away(key, target, is_named=is_named)
            self.doomed.append((now_ms + delay_ms, target))

    def set_aside(self, key: TopicPartition, *, unique: str) -> str:
        """Rename a log that lies in a partition's place; what it is called now."""
        target = self._aside(key, f".{unique}{STRAY_FOLDER}")
        self._take_away(key, target, is_named=False)
        return target

    def _aside(self, key: TopicPartition, suffix: str) -> str:
        """Where a log goes that is taken away. Of a long topic's name the end is left out, as Kafka
        does: with the suffix no disk would take it."""
        suffix = f"-{key.partition}{suffix}"
        return f"{self.path}/{key.topic[: LONGEST_NAME_BYTES - len(suffix)]}{suffix}"

    def _take_away(self, key: TopicPartition, target: str, *, is_named: bool) -> None:
        """Rename a log. One whose name was never synced (not `is_named`) may not say whose it is:
        back after a power cut, it would be taken for the one that begins in its place."""
        try:
            self.files.rename(f"{self.path}/{key}", target)
        except StorageFault:
            self.holds_unchecked = True
            raise
        if not is_named:
            self._may_return.add(key)
        if len(self._may_return) > MOST_RETURNING:
            self.settle_names()

    def may_return(self, key: TopicPartition) -> bool:
        """Whether a power cut may give a log that was taken away its place again."""
        return key in self._may_return

    def settle_names(self) -> None:
        """Have every log that was taken away stay away."""
        self.files.sync_dir(self.path)
        self._may_return.clear()

    # Logs that move here from another folder, or away to one: the order is that of `future_log`.

    def begin_future(
        self,
        key: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        *,
        unique: str,
        now_ms: int,
    ) -> Log:
        """Begin an empty copy, which no checkpoint names and no reader sees."""
        if self.fault is not None:
            raise self.fault
        self.settle_names()
        self._forget_checkpoints(key)
        folder = self._aside(key, f".{unique}{FUTURE_FOLDER}")
        log = Log.create(
            self.files, folder, key, topic_id, config, now_ms=now_ms, index_cache=self.index_cache
        )
        log.room = self.room
        return log

    def adopt_future(self, copied: Log, *, unique: str, now_ms: int) -> Log:
        """Give a copy that was closed in order the partition's name, and open it there. Raises
        StorageFault; then the copy was taken away."""
        key, place = copied.topic_partition, f"{self.path}/{copied.topic_partition}"
        try:
            copied.close(clean=False)
            if copied.config.has_remote:
                self._note_start(key, copied.start_offset)
            self.files.rename(copied.folder, place)
            self.files.sync_dir(self.path)
            log = Log.open(
                self.files,
                place,
                key,
                copied.topic_id,
                copied.config,
                now_ms=now_ms,
                recovery_point=copied.end_offset,
                log_start_offset=copied.start_offset,
                clean=True,
                index_cache=self.index_cache,
                before_truncation=self._before_truncation,
            )
            if log.end_offset != copied.end_offset:
                raise StorageFault(f"{place}: it ends at {log.end_offset} and is incomplete.")
        except StorageFault:
            if self.files.exists(place):
                self.delete_log(key, unique=unique, now_ms=now_ms)
            raise
        log.room = self.room
        log.noted_start_offset = self._log_starts.get(key, NOT_NOTED)
        self._deleted.discard(key)
        self.logs[key] = log
        return log

    def drop_future(self, copied: Log, *, unique: str, now_ms: int) -> None:
        """Take a copy away; its folder is removed with the deleted ones."""
        copied.close(clean=False)
        target = self._aside(copied.topic_partition, f".{unique}{DELETED_FOLDER}")
        if self.files.exists(copied.folder):
            self.files.rename(copied.folder, target)
            self.doomed.append((now_ms, target))

    def rename_away(self, key: TopicPartition, *, unique: str, now_ms: int) -> None:
        """Take a log away of which another folder has all, as `delete_log` does; a fault leaves it
        as it was. `settle_names` has it stay away."""
        target = self._aside(key, f"{MOVED}{unique}{DELETED_FOLDER}")
        self.files.rename(f"{self.path}/{key}", target)
        log = self.logs.pop(key)
        log.close(clean=False)
        self._deleted.add(key)
        self._drafts.clear()
        self.doomed.append((now_ms + log.config.file_delete_delay_ms, target))

    def take_due(self, now_ms: int) -> Due:
        """What has waited for its delay: whoever takes it removes it, in any thread. Nobody else
        looks at it before the next process, which removes what is left of it."""
        due = [path for due_ms, path in self.doomed if due_ms <= now_ms]
        self.doomed = [one for one in self.doomed if one[0] > now_ms]
        logs = [log for log in self.logs.values() if log.deleted]
        return Due(due, [path for log in logs for path in log.take_due(now_ms)])

    def remove_deleted(self, now_ms: int) -> None:
        """Remove folders and segment files whose delay is over."""
        due = self.take_due(now_ms)
        for path in due.folders:
            self.files.remove_tree(path)
        for path in due.files:
            self.files.remove(path)

    def checkpoint(self) -> None:
        """Write recovery points and log starts where they moved."""
        points = self._kept(self._recovery_points)
        points.update((key, log.flushed_offset) for key, log in self.logs.items())
        starts = self._kept(self._log_starts)
        starts.update(
            (key, log.start_offset)
            for key, log in self.logs.items()
            if log.segments
            and not log.start_is_assumed
            and (log.config.has_remote or log.start_offset > log.segments[0].base_offset)
        )
        if points != self._recovery_points:
            self._write(RECOVERY_POINTS, points)
            self._recovery_points = points
        if starts != self._log_starts:
            self._write(LOG_STARTS, starts)
            self._log_starts = starts
        for key, offset in starts.items():
            if key in self.logs:
                self.logs[key].noted_start_offset = offset
        self._deleted.intersection_update(self.clean_points)  # no other checkpoint names the rest

    def _kept(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Entries of partitions that are here but offline: their promise stands."""
        return {
            key: offset
            for key, offset in offsets.items()
            if key not in self.logs and key not in self._deleted
        }

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks where they moved."""
        if dict(offsets) != self._written_high_watermarks:
            self._write(HIGH_WATERMARKS, offsets)
            self._written_high_watermarks = dict(offsets)
        self.high_watermarks = dict(offsets)

    # Checkpoints that somebody waits for without holding the loop: the draft is written and synced
    # in a thread, then takes the checkpoint's name if that was not written meanwhile, no log was
    # deleted, and none got shorter than the draft says.

    def draft_clean(self, key: TopicPartition, offset: int) -> Draft:
        """The checkpoint of compaction with a partition compacted up to an offset."""
        points = self.clean_points.items()
        kept = {each: point for each, point in points if each not in self._deleted}
        return self._begun(Draft(CLEAN_POINTS, {**kept, key: offset}))

    def draft_synced(self, key: TopicPartition) -> Draft:
        """The checkpoint of recovery points with what is synced of one partition."""
        points = {**self._recovery_points, key: self.logs[key].flushed_offset}
        return self._begun(Draft(RECOVERY_POINTS, points))

    def draft_high_watermarks(self, offsets: dict[TopicPartition, int]) -> Draft:
        """The next checkpoint of high watermarks; `offsets` may be filled bit by bit, and is kept
        when the draft is adopted."""
        return self._begun(Draft(HIGH_WATERMARKS, offsets))

    def _begun(self, draft: Draft) -> Draft:
        self._drafts[draft.name] = draft
        return draft

    def _distrust(self, key: TopicPartition, end_offset: int) -> None:
        """Keep no draft that promises more of a log than there is now."""
        for draft in tuple(self._drafts.values()):
            if draft.offsets.get(key, 0) > end_offset:
                del self._drafts[draft.name]

    def write_draft(self, draft: Draft) -> None:
        """Write and sync a draft beside its checkpoint; in any thread, one at a time."""
        path = f"{self.path}/{draft.name}{DRAFT}"
        self.files.write_atomic(path, format_offsets(draft.offsets), sync=True)

    def adopt(self, draft: Draft) -> bool:
        """Have a written draft be the checkpoint, as soon as the folder is synced; False when it
        may not be any more."""
        if self._drafts.pop(draft.name, None) is not draft:
            return False
        path = f"{self.path}/{draft.name}"
        self.files.rename(path + DRAFT, path)
        if draft.name == HIGH_WATERMARKS:
            self._replaced_high_watermarks = self._written_high_watermarks
            self._written_high_watermarks = draft.offsets
            self.high_watermarks = dict(draft.offsets)
        elif draft.name == CLEAN_POINTS:
            self.clean_points = draft.offsets
        else:
            self._recovery_points = draft.offsets
        return True

    def give_up(self, draft: Draft) -> None:
        """Leave a draft: it says nothing new."""
        if self._drafts.get(draft.name) is draft:
            del self._drafts[draft.name]

    def names_synced(self) -> None:
        """The folder was synced after what was adopted."""
        self._replaced_high_watermarks = {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.files.write_atomic(f"{self.path}/{name}", format_offsets(offsets), sync=True)
        self._drafts.pop(name, None)
        if name == HIGH_WATERMARKS:
            self._replaced_high_watermarks = {}

    def _before_truncation(self, key: TopicPartition, end_offset: int) -> None:
        """The recovery point is the last one: where it is low, and a full disk keeps the log from
        being cut, the next process takes what compaction left out for the end of the log."""
        self._distrust(key, end_offset)
        self._lower_high_watermark(key, end_offset)
        log = self.logs.get(key)
        is_known = log is not None and log.config.has_remote and not log.start_is_assumed
        if log is not None and is_known and key not in self._log_starts:
            self._note_start(key, min(log.start_offset, end_offset))
        for name, offsets in (
            (LOG_STARTS, self._log_starts),
            (CLEAN_POINTS, self.clean_points),
            (RECOVERY_POINTS, self._recovery_points),
        ):
            if offsets.get(key, 0) > end_offset:
                self._write(name, {**offsets, key: end_offset})
                offsets[key] = end_offset

    def _note_start(self, key: TopicPartition, offset: int) -> None:
        """Have the checkpoint tell the start of a log whose first segment will not."""
        starts = {**self._log_starts, key: offset}
        self._write(LOG_STARTS, starts)
        self._log_starts = starts
        if key in self.logs:
            self.logs[key].noted_start_offset = offset

    @property
    def written_high_watermarks(self) -> Mapping[TopicPartition, int]:
        """As the checkpoint has them."""
        return self._written_high_watermarks

    def _lower_high_watermark(self, key: TopicPartition, end_offset: int) -> None:
        """What a log lost was committed; what takes its place is not, and may not pass for it.

        A power cut shortens many logs: with the first of them, those that are not open yet are
        noted with what was synced of them, which they have. So one write does for all."""
        written, replaced = self._written_high_watermarks, self._replaced_high_watermarks
        if max(written.get(key, 0), replaced.get(key, 0)) > end_offset:
            lowered = {
                each: offset if each in self.logs else min(offset, self.promised(each))
                for each, offset in written.items()
            }
            lowered[key] = end_offset
            self._write(HIGH_WATERMARKS, lowered)
            self._written_high_watermarks = lowered
        if self.high_watermarks.get(key, 0) > end_offset:
            self.high_watermarks[key] = end_offset

    def _forget_checkpoints(self, key: TopicPartition) -> None:
        """What was promised for a deleted partition of the same name does not hold for this one."""
        for name, offsets in (
            (RECOVERY_POINTS, self._recovery_points),
            (LOG_STARTS, self._log_starts),
            (HIGH_WATERMARKS, self._written_high_watermarks),
            (CLEAN_POINTS, self.clean_points),
        ):
            if offsets.get(key, 0) > 0:
                self._write(name, {other: offsets[other] for other in offsets if other != key})
                del offsets[key]
        self._distrust(key, 0)
        if self._replaced_high_watermarks.get(key, 0) > 0:
            self._write(HIGH_WATERMARKS, self._written_high_watermarks)
        self.high_watermarks.pop(key, None)

    def fail(self, fault: StorageFault) -> None:
        """Take the folder offline, and every log in it."""
        self.fault = self.fault or fault
        self._drafts.clear()
        for log in self.logs.values():
            log.fail(fault)

    def closing_rounds(self) -> Iterator[ClosingRound | None]:
        """What `close` would sync, a log at a time (None: that log needs nothing), so that threads
        can do it; `sync_dir(path)` belongs after them, then `log.synced` for each, then `close`."""
        for log in self.logs.values():
            if log.fault is not None:
                continue
            try:
                yield closing_round(log)
            except StorageFault as fault:
                log.fail(fault)

    def close_unmarked(self) -> None:
        """Close every log, and have the next process check them all."""
        for log in self.logs.values():
            log.close(clean=self.fault is None and log.fault is None)
        if self.fault is None:
            self.checkpoint()

    def close(self, *, broker_epoch: int = -1) -> None:
        """Close every log and leave the marker, unless something of the folder is not sound."""
        sound = self.fault is None
        for log in self.logs.values():
            try:
                log.close(clean=sound)
            except StorageFault as fault:
                log.fail(fault)
            sound = sound and log.fault is None
        if self.fault is None:
            self.checkpoint()
        if sound:
            path = f"{self.path}/{CLEAN_SHUTDOWN}"
            self.files.write_atomic(path, format_clean_shutdown(broker_epoch), sync=True)
            self.files.sync_dir(self.path)
