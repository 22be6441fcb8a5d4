"""Answers that need more than one batch's place: by timestamp, and what was aborted.

Source: KIP-33 (time index), KIP-734 (largest timestamp), KIP-98 (aborted ranges). Read through the
page cache like any fetch, so ColdRead may be raised; the same call is then made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.log.indexes import AbortedRange, InvalidIndex, decode_aborted
from anabranch.core.log.lost_index import ranges_found, ranges_of
from anabranch.core.log.lost_offsets import have_indexes
from anabranch.core.log.reader import PROBE_BYTES, position_of, rot
from anabranch.core.log.record_walk import first_not_older
from anabranch.core.log.scan import BadBatch, sound_header
from anabranch.core.log.segment import TRANSACTIONS, Segment
from anabranch.core.log.side_files import save_aborted
from anabranch.core.log.state import LogState
from anabranch.core.wire.batch import BATCH_OVERHEAD, BatchHeader


class AbortedTransaction(NamedTuple):
    """A producer's records from `first_offset` to its abort marker do not count."""

    producer_id: int
    first_offset: int


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: LogState, timestamp: int, upto: int) -> TimestampOffset | None:
    """The first local record, before `upto`, that is not older."""
    if log.fault is not None:
        raise log.fault
    for segment in log.segments[max(0, log.segment_index(log.local_start_offset)) :]:
        if newest_timestamp(log, segment) >= timestamp:
            found = _first_not_older(log, segment, timestamp)
            if found is not None:
                return found if found.offset < upto else None
    return None


def max_timestamp_offset(log: LogState, upto: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp in the log; it may lie before the log start,
    as long as its segment is there, as in Kafka."""
    if log.fault is not None:
        raise log.fault
    best: Segment | None = None
    for segment in log.segments:
        newest = newest_timestamp(log, segment)
        if newest >= 0 and (best is None or newest > best.max_timestamp):
            best = segment
    if best is None:
        return None
    position, _ = position_of(log, best, best.max_timestamp_offset)
    for at, header in _headers(log, best, position):
        if header.newest_timestamp == best.max_timestamp:
            found = _record(best, at, header, best.max_timestamp, 0)
            return found if found is not None and found.offset < upto else None
    return None


def newest_timestamp(log: LogState, segment: Segment) -> int:
    """The largest timestamp of a segment, -1 when its records have none."""
    if segment.max_timestamp < 0 and segment is not log.active and segment.size > 0:
        segment.load_newest(log.files, log.end_of(segment))
        if segment.max_timestamp < 0:
            have_indexes(log, segment)
            log.time_index(segment)
    return segment.max_timestamp


def _first_not_older(log: LogState, segment: Segment, timestamp: int) -> TimestampOffset | None:
    have_indexes(log, segment)
    relative = log.time_index(segment).offset_before(timestamp)
    relative = max(relative, log.local_start_offset - segment.base_offset)
    position = log.offset_index(segment).position_before(relative)
    for at, header in _headers(log, segment, position):
        if header.max_timestamp >= timestamp and header.last_offset >= log.local_start_offset:
            found = _record(segment, at, header, timestamp, log.local_start_offset)
            if found is not None:
                return found
    return None


def _record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, first_offset: int
) -> TimestampOffset | None:
    batch = bytes(segment.file.read(position, header.size_bytes))
    found = first_not_older(batch, header, timestamp, first_offset)
    return None if found is None else TimestampOffset(*found, header.leader_epoch)


def _headers(log: LogState, segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Batch headers from a position on, read in small probes."""
    while position < segment.size:
        probe = memoryview(segment.file.read(position, min(PROBE_BYTES, segment.size - position)))
        at = 0
        while at + BATCH_OVERHEAD <= len(probe):
            try:
                header = sound_header(probe, at, position + at)
            except BadBatch:
                raise rot(log, segment, position + at) from None
            yield position + at, header
            at += header.size_bytes
        if at == 0:
            raise rot(log, segment, position)
        position += at


def aborted_transactions(
    log: LogState, first: int, upto: int, *, blocking: bool = True
) -> list[AbortedTransaction]:
    """Every aborted transaction that overlaps `[first, upto)`. Raises LostIndex, which is a
    ColdRead, rather than read a segment's batches, where `blocking` is not set."""
    found = []
    for segment in log.segments[max(0, log.segment_index(first)) :]:
        for entry in aborted_ranges(log, segment, blocking=blocking):
            if entry.last_offset >= first and entry.first_offset < upto:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upto:
                return found
    return found


def aborted_ranges(log: LogState, segment: Segment, *, blocking: bool = True) -> list[AbortedRange]:
    """A segment's aborted ranges, from memory or from its file; as `aborted_transactions`."""
    held = log.aborted.get(segment.base_offset)
    if held is not None or segment is log.active:
        return held or []
    return load_aborted(log, segment, blocking=blocking)


def load_aborted(log: LogState, segment: Segment, *, blocking: bool = True) -> list[AbortedRange]:
    """Read a transaction index; rebuilt from the markers when the file is missing or wrong."""
    try:
        ranges = decode_aborted(log.files.read(segment.stem + TRANSACTIONS))
        if not ranges:  # so that no later fetch reads the file to learn nothing
            log.aborted[segment.base_offset] = ranges
        return ranges
    except (InvalidIndex, StorageFault):
        ranges = ranges_of(log, segment) if blocking else ranges_found(log, segment)
        log.aborted[segment.base_offset] = ranges
        save_aborted(log, segment, sync=True)
        return ranges
