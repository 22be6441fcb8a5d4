"""Making a log shorter: truncation at the end, retention and DeleteRecords at the start.

Rules kept: the checkpoints are lowered on stable storage before bytes go, so that a restart does
not take the missing end for loss; segments go one by one from the end that shrinks, so that what
stays has no hole; a cut is synced, so that no older bytes come back behind newer ones. Removed
files keep the suffix `.deleted` for `file.delete.delay.ms`, for readers that are under way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from anabranch.core.errors import ApiError, Bug, ErrorCode, StorageFault
from anabranch.core.log.failed_sync import sync_at_once
from anabranch.core.log.files import DiskFull
from anabranch.core.log.lookup import aborted_ranges, newest_timestamp
from anabranch.core.log.producer_replay import state_after_cut, state_at
from anabranch.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.reader import position_of
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.log.segment import (
    DELETED,
    LOG,
    OFFSETS,
    SNAPSHOT,
    TIMES,
    TRANSACTIONS,
    Segment,
    offset_name,
    offset_of,
)
from anabranch.core.log.segment_roll import roll
from anabranch.core.log.side_files import save_epochs, snapshot_later
from anabranch.core.log.state import NOT_NOTED, LogState
from anabranch.core.log.sync_round import (
    PathSync,
    save_epochs_before,
    sync_names,
    sync_whose,
)
from anabranch.core.types import Offset

INDEXES = (OFFSETS, TIMES, TRANSACTIONS)


class Beginning(NamedTuple):
    """What is known of a log at an offset, before which another store has it."""

    producers: bytes
    """As in a snapshot file."""
    epochs: list[tuple[int, int]]
    """Leader epochs that begin before the offset, and where."""


def beginning_at(log: LogState, offset: int) -> Beginning:
    """What a log knows at an offset. Raises StorageFault."""
    epochs = [entry for entry in log.epochs.entries if entry[1] < offset]
    return Beginning(encode_snapshot(state_at(log, offset)), epochs)


def truncate_to(log: LogState, offset: int) -> Offset:
    """Cut every batch that ends at or after `offset`, and epochs that begin there; the new end."""
    if log.fault is not None:
        raise log.fault
    if offset >= log.end_offset:
        log.epochs.cut_end(log.end_offset)  # one that was given, and never written in
        return Offset(log.end_offset)
    if offset < log.local_start_offset or log.segment_index(offset) < 0:
        truncate_fully(log, offset, log.start_offset)
        return Offset(log.end_offset)
    try:
        _cut_end(log, offset)
    except DiskFull:
        raise
    except StorageFault as fault:
        log.fault = fault
        raise
    return Offset(log.end_offset)


def _cut_end(log: LogState, offset: int) -> None:
    _end_swap(log)
    index = log.segment_index(offset)
    segment = log.segments[index]
    position, _ = position_of(log, segment, offset, blocking=True)
    while position == 0 and index > 0:  # the log ends where the batch before it does
        index -= 1
        segment = log.segments[index]
        position = segment.size
    end_offset = _end_before(log, segment, position)
    if end_offset < log.local_start_offset:  # the log starts within the batch that goes
        truncate_fully(log, log.local_start_offset, log.start_offset)
        return
    aborted = [each for each in aborted_ranges(log, segment) if each.last_offset < end_offset]
    log.before_truncation(log.topic_partition, end_offset)
    log.epochs.cut_end(end_offset)
    _save_epochs(log)
    while len(log.segments) > index + 1:
        _drop(log, log.segments.pop(), 0)
    sync_names(log)
    log.offset_index(segment)
    log.index_cache.forget(segment)
    log.active = segment
    log.unsynced_segments = [one for one in log.unsynced_segments if one[0] <= end_offset]
    log.size_bytes -= segment.size - position
    segment.size = position
    segment.file.truncate(position)
    sync_at_once(log, segment.file)
    _set_end(log, end_offset)
    segment.cut_indexes(position, end_offset)
    _note_tail(log, segment)
    log.aborted = {segment.base_offset: aborted}
    _drop_snapshots(log, lambda taken: taken > end_offset)
    log.snapshots_within = [taken for taken in log.snapshots_within if taken <= end_offset]
    snapshot_later(log, position)
    log.producers = state_after_cut(log)
    decided = log.decided_before(end_offset)
    log.decided_offset = min(log.decided_offset, decided)
    log.decided_ceiling = min(log.decided_ceiling, decided)


def _save_epochs(log: LogState) -> None:
    """Have the file tell of no epoch that a cut takes. Where a full disk keeps what it says, it is
    recovery that finds that the batches say something else."""
    with suppress(DiskFull):
        save_epochs(log, sync=True)


def _end_before(log: LogState, segment: Segment, position: int) -> int:
    """The offset after the last batch before a position: where the log ends when it is opened.

    Offsets that compaction left out there belong to no batch, so they are given up with the cut."""
    if position == 0:
        return segment.base_offset
    end_offset = segment.base_offset
    start = log.offset_index(segment).boundary_before(position - 1)
    try:
        for _, header in scan(segment.file, position, start, check_crc=False):
            end_offset = header.next_offset
    except BadBatch as bad:
        raise log.corrupt(segment, bad.position, bad.why) from None
    return end_offset


def _note_tail(log: LogState, segment: Segment) -> None:
    """Index what follows the last entry again, so that the largest timestamp is known."""
    assert segment.offset_index is not None
    positions = segment.offset_index.positions
    start = positions[-1] if positions else 0
    try:
        for position, header in scan(segment.file, segment.size, start, check_crc=False):
            if position > start or not positions:
                segment.note(
                    position,
                    header.size_bytes,
                    header.last_offset,
                    header.newest_timestamp,
                    log.config.index_interval_bytes,
                )
    except BadBatch as bad:
        raise log.corrupt(segment, bad.position, bad.why) from None


def _set_end(log: LogState, end_offset: int) -> None:
    log.end_offset = end_offset
    log.cuts += 1
    log.compacted_to = min(log.compacted_to, end_offset)
    log.flushed_offset = min(log.flushed_offset, end_offset)
    log.sync_ceiling = min(log.sync_ceiling, end_offset)
    log.hints.clear()


def truncate_fully(
    log: LogState,
    offset: int,
    start_offset: int | None = None,
    beginning: Beginning | None = None,
) -> None:
    """Drop every batch and go on at `offset`, which then counts as synced. The whole log begins
    there too, or earlier: at `start_offset`, which then outlives a crash on the way. `beginning` is
    what another log knows there; the disk has it before a segment begins at `offset`."""
    if log.fault is not None:
        raise log.fault
    if start_offset is None or not log.config.has_remote:
        start_offset = offset
    start_offset = min(start_offset, offset)
    sync_whose(log)
    _end_swap(log)
    kept_start = start_offset if log.config.has_remote else 0
    log.before_truncation(log.topic_partition, kept_start)
    log.noted_start_offset = min(log.noted_start_offset, kept_start)
    log.epochs.forget()
    _save_epochs(log)
    while log.segments:
        if len(log.segments) == 1:
            sync_names(log)  # no younger one may come back without the first
        _drop(log, log.segments.pop(), 0)
    log.active = None
    log.aborted.clear()
    log.unsynced_segments.clear()
    log.size_bytes = 0
    _set_end(log, offset)
    log.flushed_offset = log.sync_ceiling = offset
    log.decided_offset = log.decided_ceiling = offset
    log.start_offset, log.local_start_offset = start_offset, offset
    log.start_is_assumed = False
    log.compacted_to = 0
    log.snapshots_within.clear()
    log.cuts += 1
    _drop_snapshots(log, lambda _taken: True)
    log.producers = ProducerStates(log.producers.now_ms)
    if beginning is not None:
        _take_over(log, beginning)
    roll(log, 0)
    sync_names(log)


def _take_over(log: LogState, beginning: Beginning) -> None:
    """Know what another log knows here. The epochs come last: without any, it begins again."""
    producers = decode_snapshot(beginning.producers, log.producers.now_ms)
    if producers is None:
        raise Bug(f"{log.topic_partition}: producers at {log.end_offset} cannot be read")
    path = f"{log.folder}/{offset_name(log.end_offset, SNAPSHOT)}"
    try:
        log.files.write_atomic(path, beginning.producers, sync=True)
    except DiskFull:
        raise
    except StorageFault as fault:
        log.fault = fault
        raise
    log.producers = producers
    log.epochs.entries = list(beginning.epochs)
    log.epochs.unsaved_from = 0
    _save_epochs(log)


def _end_swap(log: LogState) -> None:
    """See to what compaction has replaced and not yet cleared up, before the log's end moves."""
    if log.replaced:
        log.files.sync_dir(log.folder)
        set_replaced_aside(log, 0)


def set_replaced_aside(log: LogState, now_ms: int) -> None:
    """Rename segments whose records are in another now; removed after the usual delay."""
    due_ms = now_ms + log.config.file_delete_delay_ms
    try:
        for segment in log.replaced:
            for suffix in (LOG, *INDEXES):
                path = segment.stem + suffix
                if log.files.exists(path):
                    delete_later(log, path, due_ms)
            log.files.remove(f"{log.folder}/{offset_name(segment.base_offset, SNAPSHOT)}")
    except StorageFault as fault:
        log.fault = fault
        raise
    log.replaced = []


def raise_start(log: LogState, offset: int) -> None:
    """Move the log start forward; bytes before it are removed by the next retention."""
    if log.fault is not None:
        raise log.fault
    if offset > log.end_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Cannot delete records of {log.topic_partition} before {offset}: the log ends at "
            f"{log.end_offset}.",
        )
    _raise_local_start(log, offset)
    if offset > log.start_offset:
        log.start_offset = offset
        log.epochs.cut_start(offset)


def _raise_local_start(log: LogState, offset: int) -> None:
    if offset > log.local_start_offset:
        if offset == log.end_offset:
            with suppress(DiskFull):  # no batch is left that tells which epoch was the last
                save_epochs_before(log, offset)
        log.local_start_offset = offset


def apply_retention(log: LogState, now_ms: int, high_watermark: int) -> list[str]:
    """Drop the oldest segments that are expired; the paths that will be removed later. Raises
    ColdRead where an index has to be made again to tell."""
    if log.config.has_remote:
        return drop_local(log, log.start_offset, now_ms, high_watermark)
    if log.fault is not None or not log.segments:
        return []
    doomed = _expired(log, now_ms, high_watermark)
    if not doomed:
        return []
    if len(doomed) == len(log.segments):
        roll(log, now_ms)
    raise_start(log, log.segments[len(doomed)].base_offset)
    return _drop_oldest(log, doomed, now_ms)


def drop_local(log: LogState, offset: int, now_ms: int, high_watermark: int) -> list[str]:
    """Drop the oldest closed segments that end at or before an offset; what lies before it is in
    another store, or deleted. The paths that will be removed later.

    Segments stay until a checkpoint has the log start, which their names told so far; before the
    first of them go, one gets it."""
    if not log.config.has_remote:
        raise Bug(f"{log.topic_partition} has no remote part")
    if log.fault is not None:
        return []
    if log.noted_start_offset == NOT_NOTED and offset > log.local_start_offset:
        log.before_truncation(log.topic_partition, log.end_offset)
    doomed = []
    for segment in log.segments[:-1]:
        end_offset = log.end_of(segment)
        is_noted = log.noted_start_offset >= min(log.start_offset, end_offset)
        if end_offset > min(offset, high_watermark) or not is_noted:
            break
        doomed.append(segment)
    if doomed:
        _raise_local_start(log, log.segments[len(doomed)].base_offset)
    return _drop_oldest(log, doomed, now_ms)


def _drop_oldest(log: LogState, doomed: list[Segment], now_ms: int) -> list[str]:
    paths: list[str] = []
    for segment in doomed:
        # What stays must outlive what goes, and no younger segment may go first.
        _keep_producers(log, log.segments[1].base_offset)
        sync_names(log)
        log.segments.remove(segment)
        paths += _drop(log, segment, now_ms)
    if doomed:
        sync_names(log)  # one that came back needs its snapshot
    for segment in doomed:
        if segment.base_offset < log.segments[0].base_offset:  # an empty one has a twin
            log.files.remove(f"{log.folder}/{offset_name(segment.base_offset, SNAPSHOT)}")
    log.unsynced_segments = [one for one in log.unsynced_segments if one[1] in log.segments]
    return paths


def _keep_producers(log: LogState, offset: int) -> None:
    """Store what is known of producers where the log is to begin: once the segments before are
    gone, nothing else tells it. The snapshot of a roll waits for a round, which no longer covers
    a segment that is gone, and a full disk may have refused it. One that is full even now does not
    keep the segments that fill it."""
    path = f"{log.folder}/{offset_name(offset, SNAPSHOT)}"
    if not log.files.exists(path):
        with suppress(DiskFull):
            log.files.write_atomic(path, encode_snapshot(state_at(log, offset)), sync=True)
    elif any(end_offset == offset for end_offset, _ in log.unsynced_segments):
        sync_at_once(log, PathSync(log.files, path))


def _expired(log: LogState, now_ms: int, high_watermark: int) -> list[Segment]:
    """The leading segments that are too old, too much or before the log start, and replicated."""
    config, expired = log.config, []
    excess = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    for segment in log.segments:
        end_offset = log.end_of(segment)
        if end_offset > high_watermark or (segment is log.active and segment.size == 0):
            break
        before_start = end_offset <= log.start_offset and segment is not log.active
        too_much = config.deletes and config.retention_bytes >= 0 and excess >= segment.size
        if not (before_start or too_much or _too_old(log, segment, now_ms)):
            break
        excess -= segment.size
        expired.append(segment)
    return expired


def _too_old(log: LogState, segment: Segment, now_ms: int) -> bool:
    if not log.config.deletes or log.config.retention_ms < 0:
        return False
    newest = newest_timestamp(log, segment)
    if newest < 0:
        newest = log.files.modified_ms(segment.stem + LOG)
    return now_ms - newest > log.config.retention_ms


def _drop(log: LogState, segment: Segment, now_ms: int) -> list[str]:
    """Rename a segment's files; they are removed after the delay."""
    log.size_bytes -= segment.size
    log.index_cache.forget(segment)
    log.aborted.pop(segment.base_offset, None)
    log.lost_indexes.pop(segment.base_offset, None)
    log.lost_offsets.pop(segment.base_offset, None)
    log.hints.clear()
    segment.is_dropped = True
    segment.file.close()
    paths = []
    due_ms = now_ms + log.config.file_delete_delay_ms
    for suffix in (LOG, *INDEXES):
        path = segment.stem + suffix
        if log.files.exists(path) and delete_later(log, path, due_ms):
            paths.append(path + DELETED)
    log.names_unsynced = True
    return paths


def delete_later(log: LogState, path: str, due_ms: int) -> bool:
    """Rename a file that is removed when that is due; whether it was renamed. A disk may have no
    room for the longer name: then the file goes at once, so that no segment keeps a place in the
    folder that the log does not know any more. Whoever reads it has it open."""
    try:
        log.files.rename(path, path + DELETED)
    except DiskFull:
        log.files.remove(path)
        return False
    log.deleted.append((due_ms, path + DELETED))
    return True


def _drop_snapshots(log: LogState, doomed: Callable[[int], bool]) -> None:
    for name in log.files.list(log.folder):
        taken = offset_of(name, SNAPSHOT)
        if taken >= 0 and doomed(taken):
            log.files.remove(f"{log.folder}/{name}")


def take_due(log: LogState, now_ms: int) -> list[str]:
    """Files whose delay is over: the caller removes them."""
    due = [path for due_ms, path in log.deleted if due_ms <= now_ms]
    log.deleted = [one for one in log.deleted if one[0] > now_ms]
    return due
