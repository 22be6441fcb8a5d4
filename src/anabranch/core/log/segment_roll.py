"""Closing a segment and beginning the next one, and the small files that lie beside the batches.

Rule kept: all that stands beside the batches can be made again from them, so a full disk stops
neither a roll nor an append because of it. Not here: when a segment is full (`appends`).
"""

from __future__ import annotations

from zlib import crc32

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.segment import Segment
from anabranch.core.log.side_files import (
    forget_beside,
    save_aborted,
    save_snapshot,
    snapshot_later,
)
from anabranch.core.log.state import LogState
from anabranch.core.log.sync_round import sync_names


def roll(log: LogState, now_ms: int, *, base_offset: int | None = None) -> Segment:
    """Close the active segment and begin one at the log's end; or at `base_offset`, for a batch
    so far behind it that no index reaches there."""
    base_offset = log.end_offset if base_offset is None else base_offset
    segment = Segment(log.files, log.folder, base_offset, now_ms)
    try:
        if log.active is not None:
            # Segments must not come back without the one before: no reader could tell that
            # from retention. After the first roll a sync round has usually done it.
            sync_names(log)
        segment.file.truncate(0)
        if log.active is not None:
            close_segment(log, log.active)
    except DiskFull:
        segment.file.close()
        log.files.remove(segment.file.path)  # the log may go on without it, past its offset
        raise
    except StorageFault as fault:
        log.fault = fault
        raise
    log.segments.append(segment)
    log.active = segment
    snapshot_later(log, 0)
    log.names_unsynced = True
    return segment


def roll_if_due(log: LogState, now_ms: int) -> bool:
    """Roll an idle segment that is older than `segment.ms`; True when it was."""
    segment = log.active
    if segment is None or segment.size == 0 or log.fault is not None:
        return False
    if now_ms - segment.created_ms <= age_limit_ms(log, segment):
        return False
    roll(log, now_ms)
    return True


def age_limit_ms(log: LogState, segment: Segment) -> int:
    """The age from which a segment is closed: `segment.ms` less a part below `segment.jitter.ms`
    that differs by partition and segment, the same at every replica. It is never all of the age, as
    in Kafka: else each batch would begin a segment."""
    config = log.config
    if config.segment_jitter_ms <= 0:
        return config.segment_ms
    most_ms = max(1, min(config.segment_jitter_ms, config.segment_ms))
    which = f"{log.topic_partition} {segment.base_offset}".encode()
    return config.segment_ms - crc32(which) % most_ms


def close_segment(log: LogState, segment: Segment) -> None:
    """Write what belongs beside a segment that gets no more batches, and have it synced.

    All of it can be made again from the batches, so a full disk does not stop a roll; the snapshot,
    which comes first, only as long as these are there. What was there of the segment when it was
    closed before, and was cut since, may not stay."""
    log.unsynced_segments.append((log.end_offset, segment))
    try:
        save_snapshot(log)
        segment.save_indexes(log.files)
        log.index_cache.keep(segment)
        save_aborted(log, segment)
    except DiskFull:
        if not segment.index_saved:
            forget_beside(log, segment)
