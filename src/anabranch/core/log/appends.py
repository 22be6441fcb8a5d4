"""Appending: as the leader, which gives offsets, and as a follower, which takes them.

Rule kept: everything that can be refused is refused before the first byte is written; after the
write only memory changes. A full disk leaves the log as it was; any other failed write takes it
offline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log import validation
from anabranch.core.log.failed_sync import sync_at_once
from anabranch.core.log.files import DiskFull
from anabranch.core.log.indexes import INT32_MAX, NO_TIMESTAMP
from anabranch.core.log.producer_replay import note_batch
from anabranch.core.log.segment import Segment
from anabranch.core.log.segment_roll import age_limit_ms, roll
from anabranch.core.log.side_files import save_snapshot_within
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader, patch, patch_log_append_time, walk

Entry: TypeAlias = tuple[int, BatchHeader, int, int]
"""A batch to be written: its position in the bytes, header, base offset, largest timestamp."""


class AppendResult(NamedTuple):
    """Where a batch landed; `duplicate` when it had been appended before (its first place is
    given).

    `last_offset` is inclusive; `log_append_time_ms` is -1 unless the topic uses LogAppendTime or
    the batch is a duplicate, of which Kafka tells the newest timestamp."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    start_offset: int
    duplicate: bool


def as_leader(
    log: LogState, records: Buffer, leader_epoch: int, now_ms: int, *, client: bool
) -> AppendResult:
    """Give whole batches the next offsets and append them; a writable buffer is patched in
    place.

    `client=False` is for batches that this node has just made: they are not checked. Raises
    ApiError with Kafka's code, DiskFull (the log is as before), StorageFault (it is offline).
    """
    if log.fault is not None:
        raise log.fault
    config = log.config
    view = writable(records)
    if not client:
        batches = list(walk(view))
    else:
        view, batches = validation.check_client(view, config, log.topic_partition, now_ms)
        duplicate = _duplicate(log, batches)
        if duplicate is not None:
            return duplicate
    if len(view) > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{len(view)} bytes for {log.topic_partition} do not fit into a segment of "
            f"{config.segment_bytes} bytes.",
        )
    offset = first_offset = log.end_offset
    log_append_time = config.message_timestamp_type == "LogAppendTime"
    entries = []
    for position, header in batches:
        patch(view, position, offset, leader_epoch)
        timestamp = header.max_timestamp
        if log_append_time:
            patch_log_append_time(view, position, header.size_bytes, now_ms)
            timestamp = now_ms
        entries.append((position, header, offset, timestamp))
        offset += header.last_offset_delta + 1
    if entries:
        _write(log, view, entries, now_ms)
        log.epochs.assign(leader_epoch, first_offset)
    appended_ms = now_ms if log_append_time else NO_TIMESTAMP
    return AppendResult(first_offset, offset - 1, appended_ms, log.start_offset, False)


def as_follower(log: LogState, records: Buffer, now_ms: int) -> AppendResult:
    """Append whole batches as the leader wrote them; an incomplete batch at the end is left
    out.

    A batch that is larger than a segment may be is taken, into a segment of its own: the leader
    has it since segments were larger. What begins a log gives its epoch the log's start: where
    compaction left out offsets between, the batches that were there were of this epoch, since its
    first ones were deleted."""
    if log.fault is not None:
        raise log.fault
    view, begins_log = memoryview(records), log.end_offset == log.local_start_offset
    log_start = log.local_start_offset
    entries = [
        (position, header, header.base_offset, header.newest_timestamp)
        for position, header in validation.check_copied(view, log.end_offset, log.topic_partition)
    ]
    whole_bytes = entries[-1][0] + entries[-1][1].size_bytes if entries else 0
    first_offset = entries[0][2] if entries else log.end_offset
    for run in _runs(log, entries, whole_bytes):
        start, (last_start, last_header, *_) = run[0][0], run[-1]
        bytes_of_run = view[start : last_start + last_header.size_bytes]
        if start:
            run = [(at - start, header, base, newest) for at, header, base, newest in run]
        _write(log, bytes_of_run, run, now_ms)
        for _, header, offset, _ in run:
            is_first = begins_log and offset == first_offset
            log.epochs.assign(header.leader_epoch, log_start if is_first else offset)
    return AppendResult(first_offset, log.end_offset - 1, NO_TIMESTAMP, log.start_offset, False)


def _runs(log: LogState, entries: list[Entry], size_bytes: int) -> Iterator[list[Entry]]:
    """Batches of a leader, as each segment can take them: one run, nearly always.

    More where the leader's segments are larger, or compaction left out more than 2^31 offsets."""
    limit_bytes = log.config.segment_bytes
    if not entries:
        return
    farthest = _begins_at(log, entries[0]) + INT32_MAX
    if size_bytes <= limit_bytes and entries[-1][1].last_offset <= farthest:
        yield entries
        return
    run: list[Entry] = []
    for entry in entries:
        position, header, _, _ = entry
        if run and (
            position + header.size_bytes - run[0][0] > limit_bytes or header.last_offset > farthest
        ):
            yield run
            run = []
        if not run:
            farthest = _begins_at(log, entry) + INT32_MAX
        run.append(entry)
    yield run


def _begins_at(log: LogState, entry: Entry) -> int:
    """Where a segment that begins with this batch does: at the log's end, unless no index reaches
    from there to the end of this very batch. Recovery tells by that which offsets no power cut
    took (`recovery.py`)."""
    _, header, base_offset, _ = entry
    is_far = base_offset + header.last_offset_delta - log.end_offset > INT32_MAX
    return base_offset if is_far else log.end_offset


def _duplicate(log: LogState, batches: list[tuple[int, BatchHeader]]) -> AppendResult | None:
    """The first place of a batch that came before; refuses one that is fenced or out of
    order."""
    for _, header in batches:
        if header.producer_id < 0:
            continue
        seen = log.producers.duplicate_of(header)
        if seen is not None:
            return AppendResult(
                seen.first_offset, seen.last_offset, seen.timestamp, log.start_offset, True
            )
        log.producers.check(header)
    return None


def _write(log: LogState, view: memoryview, entries: list[Entry], now_ms: int) -> None:
    """Append bytes and note each batch."""
    if log.room.is_full:
        raise log.room.refusal(log.topic_partition)
    size = len(view)
    _, last_header, last_base, newest = entries[-1]
    end_offset = last_base + last_header.last_offset_delta + 1
    segment = log.active
    if segment is None or _must_roll(log, segment, size, end_offset, newest, now_ms):
        segment = roll(log, now_ms, base_offset=_begins_at(log, entries[0]))
    start = segment.size
    if start >= log.snapshot_due_bytes:
        try:
            save_snapshot_within(log, start)
        except StorageFault as fault:
            log.fault = fault
            raise
    try:
        segment.file.write(start, (view,))
    except StorageFault as fault:
        _undo_write(log, segment, fault)
        raise
    segment.size = start + size
    log.size_bytes += size
    if log.unsynced_since_ms < 0:
        log.unsynced_since_ms = now_ms
    if segment.first_timestamp < 0:
        segment.first_timestamp = entries[0][3]
    segment.index_saved = False
    interval = log.config.index_interval_bytes
    log.producers.now_ms = now_ms
    for position, header, base_offset, timestamp in entries:
        last_offset = base_offset + header.last_offset_delta
        segment.note(start + position, header.size_bytes, last_offset, timestamp, interval)
        if header.producer_id >= 0:
            aborted = note_batch(log.producers, header, view, position, base_offset, timestamp)
            if aborted is not None:
                log.aborted.setdefault(segment.base_offset, []).append(aborted)
    log.end_offset = end_offset


def _undo_write(log: LogState, segment: Segment, fault: StorageFault) -> None:
    """Cut what a full disk let through; anything else, or failing to cut, is the log's end."""
    if isinstance(fault, DiskFull):
        try:
            segment.file.truncate(segment.size)
            sync_at_once(log, segment.file)
        except StorageFault as second:
            log.fault = second
    else:
        log.fault = fault


def _must_roll(
    log: LogState, segment: Segment, size: int, end_offset: int, newest: int, now_ms: int
) -> bool:
    config = log.config
    if segment.size + size > config.segment_bytes and segment.size > 0:
        return True
    if not segment.can_hold(end_offset - 1):
        return True
    if segment.size == 0:
        return False
    if segment.first_timestamp >= 0 and newest >= 0:
        waited_ms = newest - segment.first_timestamp
    else:
        waited_ms = now_ms - segment.created_ms
    return waited_ms > age_limit_ms(log, segment) or segment.index_full(config.segment_index_bytes)


def writable(records: Buffer) -> memoryview:
    """The bytes, or a copy where they may not be changed."""
    view = memoryview(records)
    return memoryview(bytearray(view)) if view.readonly else view
