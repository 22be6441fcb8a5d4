"""Opening a log: finding its end, and telling what was never safe from what has rotted.

After a clean shutdown only the end of the active segment is looked at. Otherwise every segment
from the one that holds the recovery point on is read whole, checksums included, and its indexes and
the producer state are made anew. Known leader epochs stay where the batches agree: in a compacted
log the table may know more than they do.

Where a sync may have failed (`failed_sync`), what lies behind the recovery point is written again
as it is read, and so are the small files beside the batches.

Bytes that are not sound at or after the recovery point were never promised: they are cut, with
everything behind them, and counted. Before the recovery point they were synced, so the disk lost
them: CorruptLog. The same holds for a log that ends before its recovery point.
"""

from __future__ import annotations

from anabranch.core.errors import CorruptLog
from anabranch.core.log import segment_swap
from anabranch.core.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    InvalidCheckpoint,
    parse_epochs,
)
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.failed_sync import MARK, WriteBackFile, sync_at_once
from anabranch.core.log.indexes import INT32_MAX, AbortedRange
from anabranch.core.log.lookup import load_aborted
from anabranch.core.log.producer_replay import note_in_file, state_at
from anabranch.core.log.scan import BadBatch, scan, sound_header
from anabranch.core.log.segment import (
    DELETED,
    LOG,
    OFFSETS,
    SNAPSHOT,
    TIMES,
    TRANSACTIONS,
    Segment,
    offset_of,
)
from anabranch.core.log.segment_roll import close_segment, roll
from anabranch.core.log.side_files import (
    remove_stray_snapshots,
    save_epochs,
    save_snapshot_within,
    snapshot_later,
)
from anabranch.core.log.state import NOT_NOTED, LogState
from anabranch.core.wire.batch import BATCH_OVERHEAD, BatchHeader

FAR_OFFSETS = INT32_MAX // 2
"""No power cut takes so many: a record has seven bytes or more, and a segment a gigabyte or two."""
NOT_REACHED = -1
"""No batch behind the recovery point was read yet."""
LEFTOVERS = (DELETED, ".cleaned", ".swap", ".tmp")


class _Opening:
    """The counters and bounds of one opening."""

    __slots__ = (
        "clean_point",
        "cut_bytes",
        "decided_offset",
        "is_unsure",
        "now_ms",
        "rebuilt",
        "recovery_point",
        "scanned_bytes",
    )

    def __init__(self, now_ms: int, recovery_point: int, clean_point: int) -> None:
        self.now_ms = now_ms
        self.recovery_point = recovery_point
        self.clean_point = clean_point
        self.decided_offset = NOT_REACHED
        self.is_unsure = False
        self.scanned_bytes = self.cut_bytes = self.rebuilt = 0


def load(
    log: LogState,
    *,
    now_ms: int,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    clean_point: int = 0,
) -> tuple[int, int, int]:
    """Fill a fresh Log from its folder; (scanned bytes, cut bytes, rebuilt indexes)."""
    opening = _Opening(now_ms, recovery_point, clean_point)
    log.producers.now_ms = now_ms
    names = _own_names(log)
    log.is_marked = opening.is_unsure = MARK in names and not clean
    _find_segments(log, names, now_ms)
    epochs_known = _load_epochs(log, names)
    has_table = bool(log.epochs.entries)
    log.start_offset = log.local_start_offset = max(log_start_offset, 0)
    if log.segments:
        log.local_start_offset = max(log_start_offset, log.segments[0].base_offset)
        if not log.config.has_remote:
            log.start_offset = log.local_start_offset
        log.start_is_assumed = log_start_offset == NOT_NOTED and log.start_offset != (
            log.local_start_offset
        )
        if not (clean and _open_clean(log, names, opening, epochs_known)):
            _recover(log, names, opening, epochs_known=epochs_known)
    remove_stray_snapshots(log, names)
    _check_length(log, opening)
    log.flushed_offset = log.end_offset if clean else min(recovery_point, log.end_offset)
    log.sync_ceiling = log.flushed_offset
    if clean or opening.decided_offset == NOT_REACHED:
        opening.decided_offset = log.decided_before(log.flushed_offset)
    log.decided_offset = log.decided_ceiling = opening.decided_offset
    log.unsynced_since_ms = now_ms if log.flushed_offset < log.end_offset else -1
    if log.epochs.entries:
        log.epochs.cut_end(log.end_offset)
        log.epochs.cut_start(log.start_offset)
        if not has_table:
            log.epochs.reach_back(log.local_start_offset)
    log.names_unsynced = log.epochs.unsynced = not clean
    # A round that covers records covers the name; a log without any was closed without a round.
    log.is_named = clean and log.flushed_offset > log.local_start_offset
    if opening.is_unsure:
        _write_again_beside(log, names)
    elif MARK in names:
        log.files.remove(f"{log.folder}/{MARK}")  # a round was to come, and the log was closed
    log.producers.expire(now_ms, log.config.producer_id_expiration_ms, keeps_ended=True)
    return opening.scanned_bytes, opening.cut_bytes, opening.rebuilt


def _write_again_beside(log: LogState, names: list[str]) -> None:
    """Store what a round that failed may have lost of the small files."""
    save_epochs(log, sync=True)
    if PARTITION_METADATA in names:
        path = f"{log.folder}/{PARTITION_METADATA}"
        log.files.write_atomic(path, log.files.read(path), sync=True)


def _own_names(log: LogState) -> list[str]:
    """The folder's names, once what a crash interrupted is finished and rubbish is removed."""
    listed = log.files.list(log.folder)
    if segment_swap.complete(log.files, log.folder, listed):
        listed = log.files.list(log.folder)
    names = []
    for name in listed:
        if name.endswith(LEFTOVERS):
            log.files.remove(f"{log.folder}/{name}")
        else:
            names.append(name)
    return names


def _find_segments(log: LogState, names: list[str], now_ms: int) -> None:
    for name in names:
        base_offset = offset_of(name, LOG)
        if base_offset >= 0:
            segment = Segment(log.files, log.folder, base_offset, now_ms)
            segment.size = segment.file.size()
            segment.drop_indexes()
            log.segments.append(segment)
            log.size_bytes += segment.size
    if log.segments:
        log.active = log.segments[-1]
        log.end_offset = log.active.base_offset


def _load_epochs(log: LogState, names: list[str]) -> bool:
    """Read the epoch table; False when it has to be made again."""
    if LEADER_EPOCHS not in names:
        return False
    try:
        log.epochs = LeaderEpochs(parse_epochs(log.files.read(f"{log.folder}/{LEADER_EPOCHS}")))
    except InvalidCheckpoint:
        return False
    return True


def _open_clean(log: LogState, names: list[str], opening: _Opening, epochs_known: bool) -> bool:
    """Walk from the last index entry to the end; False when that does not hold together."""
    active = log.segments[-1]
    _check_closed_indexes(log, log.segments[:-1], names, opening)
    try:
        any_end = active.base_offset + INT32_MAX
        if active.load_indexes(log.files, log.config.index_interval_bytes, any_end):
            opening.rebuilt += 1
        assert active.offset_index is not None
        positions = active.offset_index.positions
        start = positions[-1] if positions else 0
        if start:
            active.first_timestamp = first_timestamp(active)
        for position, header in scan(active.file, active.size, start, check_crc=False):
            log.end_offset = header.next_offset
            if active.first_timestamp < 0:
                active.first_timestamp = header.max_timestamp
            if position > start or not positions:
                _note(log, active, position, header)
        if not epochs_known:
            _rebuild_epochs(log, log.segments)
        log.producers = state_at(log, log.end_offset, names)
        snapshot_later(log, active.size)  # the clean stop has left one
        _load_active_aborted(log, active, names)
    except (BadBatch, CorruptLog):
        active.reset()
        return False
    return True


def first_timestamp(segment: Segment) -> int:
    """The largest timestamp of a segment's first batch: `segment.ms` counts from it."""
    head = memoryview(segment.file.read_blocking(0, BATCH_OVERHEAD))
    return sound_header(head, 0, 0).max_timestamp


def _note(log: LogState, segment: Segment, position: int, header: BatchHeader) -> None:
    segment.note(
        position,
        header.size_bytes,
        header.last_offset,
        header.newest_timestamp,
        log.config.index_interval_bytes,
    )


def _load_active_aborted(log: LogState, active: Segment, names: list[str]) -> None:
    if active.size:
        ranges = load_aborted(log, active)
        if ranges:
            log.aborted[active.base_offset] = ranges


def _check_closed_indexes(
    log: LogState, segments: list[Segment], names: list[str], opening: _Opening
) -> None:
    """Rebuild indexes that are missing beside closed segments; wrong ones show when they are
    used."""
    present = set(names)
    for segment in segments:
        stem = segment.stem.rpartition("/")[2]
        if stem + OFFSETS in present and stem + TIMES in present:
            continue
        try:
            segment.rebuild_indexes(log.files, log.config.index_interval_bytes)
        except BadBatch as bad:
            raise log.corrupt(segment, bad.position, bad.why) from None
        segment.drop_indexes()
        opening.rebuilt += 1


def _recover(log: LogState, names: list[str], opening: _Opening, *, epochs_known: bool) -> None:
    """Read every segment from the recovery point's on, checksums included."""
    # A segment that ends at the recovery point may have been closed after that sync: its indexes
    # were then not synced with it.
    first = max(0, log.segment_index(opening.recovery_point - 1))
    _check_closed_indexes(log, log.segments[:first], names, opening)
    base_offset = log.segments[first].base_offset
    if not epochs_known:
        _rebuild_epochs(log, log.segments[:first])
    log.producers = state_at(log, base_offset, names)
    log.aborted.clear()
    _remove_snapshots_after(log, names, base_offset)
    log.end_offset = base_offset
    _recover_segments(log, first, opening)


def _recover_segments(log: LogState, first: int, opening: _Opening) -> None:
    for index, segment in enumerate(log.segments[first:], first):
        log.active = segment
        whole = _recover_segment(log, segment, opening)
        if index + 1 == len(log.segments):
            return
        following = log.segments[index + 1]
        if not whole or _cannot_follow(log, following, opening):
            if log.end_offset < _promised(log, opening):
                raise log.corrupt(
                    following, 0, f"the segment cannot follow offset {log.end_offset - 1}"
                )
            _drop_segments(log, index + 1, opening)
            return
        log.end_offset = following.base_offset
        close_segment(log, segment)


def _rebuild_epochs(log: LogState, segments: list[Segment]) -> None:
    log.epochs = LeaderEpochs()
    for segment in segments:
        try:
            for _, header in scan(segment.file, segment.size, check_crc=False):
                log.epochs.assign(header.leader_epoch, header.base_offset)
        except BadBatch as bad:
            raise log.corrupt(segment, bad.position, bad.why) from None


def _recover_segment(log: LogState, segment: Segment, opening: _Opening) -> bool:
    """Check one segment and make its indexes; False when it had to be cut."""
    segment.reset()
    snapshot_later(log, 0)
    file = WriteBackFile(segment.file)
    try:
        for position, header in scan(file, segment.size, check_crc=True):
            if opening.is_unsure and header.next_offset > opening.recovery_point:
                file.begin(position)
            _accept(log, segment, position, header, opening)
            opening.scanned_bytes += header.size_bytes
    except BadBatch as bad:
        _cut(log, segment, bad, opening)
        return False
    return True


def _cannot_follow(log: LogState, segment: Segment, opening: _Opening) -> bool:
    """Whether a segment cannot be the next one.

    Offsets may be left out between segments where compaction was at work, now or ever: it cleans
    only below a recovery point that is safe, Kafka's below its clean point. Elsewhere a segment
    begins where the one before ended, so a hole is the end of a file that a power cut took; but a
    copy of a compacted log may leave out more offsets than a segment can have."""
    left_out = segment.base_offset - log.end_offset
    if left_out <= 0:
        return left_out < 0
    compacted_upto = max(opening.recovery_point, opening.clean_point)
    if segment.base_offset <= compacted_upto or left_out >= FAR_OFFSETS:
        return False
    return not _begins_far(log, segment)


def _begins_far(log: LogState, segment: Segment) -> bool:
    """Whether a segment could not begin where the one before ended: no index reaches from there to
    the end of its first batch, so that offsets were left out when it was written."""
    try:
        _, header = next(scan(segment.file, segment.size, check_crc=False))
    except (BadBatch, StopIteration):
        return False
    return header.last_offset - log.end_offset > INT32_MAX


def _accept(
    log: LogState, segment: Segment, position: int, header: BatchHeader, opening: _Opening
) -> None:
    # Offsets may be left out within a file, whatever the policy is now: a compacted log, or its
    # copy on a follower, stays as it is. No crash leaves sound batches out of a file's middle.
    if header.base_offset < log.end_offset or not segment.can_hold(header.last_offset):
        raise BadBatch(position, f"offset {header.base_offset} cannot follow {log.end_offset - 1}")
    if header.next_offset > opening.recovery_point and opening.decided_offset == NOT_REACHED:
        opening.decided_offset = log.decided_before(opening.recovery_point)
    if position >= log.snapshot_due_bytes:
        save_snapshot_within(log, position)
    _note(log, segment, position, header)
    if segment.first_timestamp < 0:
        segment.first_timestamp = header.max_timestamp
    start_offset = log.local_start_offset
    is_first = position == 0 and segment is log.segments[0] and log.end_offset == start_offset
    begin = start_offset if is_first else header.base_offset
    log.epochs.found(header.leader_epoch, header.base_offset, begin, log.start_offset)
    if header.producer_id >= 0:
        entry: AbortedRange | None = note_in_file(log, log.producers, segment, position, header)
        if entry is not None:
            log.aborted.setdefault(segment.base_offset, []).append(entry)
    log.end_offset = header.next_offset


def _cut(log: LogState, segment: Segment, bad: BadBatch, opening: _Opening) -> None:
    """Cut unsound bytes that were never safe; name those that were."""
    if log.end_offset < _promised(log, opening):
        raise log.corrupt(segment, bad.position, bad.why)
    opening.cut_bytes += segment.size - bad.position
    log.size_bytes -= segment.size - bad.position
    segment.size = bad.position
    segment.file.truncate(bad.position)
    sync_at_once(log, segment.file)


def _promised(log: LogState, opening: _Opening) -> int:
    """The offset up to which bytes were synced and are still wanted."""
    return opening.recovery_point if log.local_start_offset < opening.recovery_point else 0


def _drop_segments(log: LogState, index: int, opening: _Opening) -> None:
    """Remove the segments behind a cut, the last one first, so that what stays has no hole."""
    while len(log.segments) > index:
        segment = log.segments.pop()
        opening.cut_bytes += segment.size
        log.size_bytes -= segment.size
        segment.file.close()
        for suffix in (LOG, OFFSETS, TIMES, TRANSACTIONS):
            log.files.remove(segment.stem + suffix)
    log.unsynced_segments = [one for one in log.unsynced_segments if one[1] in log.segments]
    log.files.sync_dir(log.folder)


def _remove_snapshots_after(log: LogState, names: list[str], base_offset: int) -> None:
    """Drop snapshots behind a point from which the log is read again."""
    for name in names:
        if offset_of(name, SNAPSHOT) > base_offset:
            log.files.remove(f"{log.folder}/{name}")


def _check_length(log: LogState, opening: _Opening) -> None:
    """A log that is shorter than what was synced is not opened."""
    if log.end_offset < log.local_start_offset:
        _start_over(log, opening)
    if log.end_offset < opening.recovery_point:
        segment = log.active or Segment(log.files, log.folder, log.end_offset, opening.now_ms)
        raise log.corrupt(
            segment,
            segment.size,
            f"the log ends at offset {log.end_offset}, but {opening.recovery_point} was synced",
        )


def _start_over(log: LogState, opening: _Opening) -> None:
    """Everything that was left lies before the log start: go on there."""
    _drop_segments(log, 0, opening)
    log.end_offset = log.local_start_offset
    log.epochs.forget()
    log.aborted.clear()
    log.active = None
    if log.end_offset > 0:
        roll(log, opening.now_ms)
        log.files.sync_dir(log.folder)  # from now on its name alone may say where the log starts
