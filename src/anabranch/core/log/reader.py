"""Finding and reading whole batches: one read of the file in the usual case.

A reader that goes on where it (or the log's end) was is found by its hint; anybody else through the
offset index and the headers of at most one index interval. Where a size limit falls inside a
batch, the last batch boundary before it is found the same way. Only when both ends are known are
the batches read, or, where they are only sent on and the file does that, lent: then only the first
header is read. Rule kept: what is returned begins with the batch that holds the offset and ends
with a whole batch below `upto`.
"""

from __future__ import annotations

import struct

from anabranch.core.errors import CorruptLog
from anabranch.core.log.lost_offsets import have_indexes
from anabranch.core.log.segment import Segment
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer, Piece
from anabranch.core.wire.batch import BATCH_OVERHEAD, MAGIC

PROBE_BYTES = 4096 + BATCH_OVERHEAD  # one index interval and the header that follows
_HEAD = struct.Struct(">qiibIhi")  # as far as the last offset delta


def batch_end(
    log: LogState, segment: Segment, buffer: Buffer, at: int, position: int
) -> tuple[int, int, int]:
    """(base offset, last offset, size) of the batch at `at`, or CorruptLog."""
    base_offset, length, _, magic, _, _, delta = _HEAD.unpack_from(buffer, at)
    size = length + 12
    if (
        magic != MAGIC
        or size < BATCH_OVERHEAD
        or position + size > segment.size
        or delta < 0
        or base_offset < segment.base_offset
        or base_offset + delta >= log.end_offset
    ):
        raise rot(log, segment, position)
    return base_offset, base_offset + delta, size


def rot(log: LogState, segment: Segment, position: int) -> CorruptLog:
    """Take the partition offline: bytes that were sound when they were written are not any more."""
    fault = log.corrupt(segment, position, "no sound batch begins here")
    log.fault = fault
    return fault


def position_of(
    log: LogState, segment: Segment, offset: int, *, blocking: bool = False
) -> tuple[int, int]:
    """(position, base offset) of the first batch that ends at or after an offset.

    At the end of the segment it is (size, offset)."""
    if not blocking:
        have_indexes(log, segment)
    position = log.offset_index(segment).position_before(offset - segment.base_offset)
    read = segment.file.read_blocking if blocking else segment.file.read
    while position < segment.size:
        probe = read(position, min(PROBE_BYTES, segment.size - position))
        at = 0
        while at + BATCH_OVERHEAD <= len(probe):
            base, last, size = batch_end(log, segment, probe, at, position + at)
            if last >= offset:
                return position + at, base
            at += size
        if at == 0:
            raise rot(log, segment, position)
        position += at
    return position, offset


def read_batches(
    log: LogState,
    segment: Segment,
    offset: int,
    max_bytes: int,
    upto: int,
    at_least_one: bool,
    *,
    lends: bool = False,
) -> Piece | None:
    """Whole batches of one segment from the one that holds `offset`; b"" when none may be read.

    None when the segment has no batch at or after the offset: the next one may."""
    start = _start(log, segment, offset)
    limit = _limit(log, segment, upto)
    if start >= limit:
        return None if start >= segment.size else b""
    if limit - start <= max_bytes:
        end, end_offset = limit, min(upto, log.end_of(segment))
        log.remember(upto, segment, limit)
    else:
        end, end_offset = _end_within(log, segment, start, max_bytes, at_least_one)
        if end == start:
            return b""
        log.remember(end_offset, segment, end)
    return _piece(log, segment, offset, start, end, end_offset, lends)


def _start(log: LogState, segment: Segment, offset: int) -> int:
    hint = log.hints.get(offset)
    if hint is not None and hint[0] is segment:
        return hint[1]
    if offset == segment.base_offset:
        return 0
    return position_of(log, segment, offset)[0]


def _limit(log: LogState, segment: Segment, upto: int) -> int:
    """Where the first batch begins that reaches `upto`."""
    if upto >= log.end_of(segment):
        return segment.size
    hint = log.hints.get(upto)
    if hint is not None and hint[0] is segment:
        return hint[1]
    return position_of(log, segment, upto)[0]


def _end_within(
    log: LogState, segment: Segment, start: int, max_bytes: int, at_least_one: bool
) -> tuple[int, int]:
    """(position, offset) where whole batches from `start` on end that take at most `max_bytes`: at
    `start` when the first one is larger, or behind it when it is wanted all the same.

    There is a batch that does not fit: more than `max_bytes` may be read."""
    most = start + max_bytes
    have_indexes(log, segment)
    position = max(start, log.offset_index(segment).boundary_before(most))
    while True:
        probe = segment.file.read(position, min(PROBE_BYTES, segment.size - position))
        at = 0
        while at + BATCH_OVERHEAD <= len(probe):
            base, last, size = batch_end(log, segment, probe, at, position + at)
            if position + at + size > most:
                if at_least_one and position + at == start:
                    return start + size, last + 1
                return position + at, base
            at += size
        if at == 0:
            raise rot(log, segment, position)
        position += at


def _piece(
    log: LogState, segment: Segment, offset: int, start: int, end: int, end_offset: int, lends: bool
) -> Piece:
    """The batches between two positions, lent if the file does that. What is lent keeps its length:
    whether it is worth it depends on that."""
    loan = segment.file.lend(start, end - start) if lends else None
    if loan is None:
        return _sound(log, segment, segment.file.read(start, end - start), offset, start)
    loan.head = _sound(log, segment, segment.file.read(start, BATCH_OVERHEAD), offset, start)
    loan.end_offset = end_offset
    return loan


def _sound(log: LogState, segment: Segment, held: Buffer, offset: int, start: int) -> Buffer:
    """The bytes read, if they begin with the batch that was looked for."""
    if len(held) < BATCH_OVERHEAD:
        raise rot(log, segment, start)
    _, last, _ = batch_end(log, segment, held, 0, start)
    if last < offset:
        raise rot(log, segment, start)
    return held
