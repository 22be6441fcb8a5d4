"""Finding and reading whole batches: one read of the file in the usual case.

A reader that goes on where it (or the log's end) was is found by its hint; anybody else through the
offset index and the headers of at most one index interval. Where a size limit falls inside a
batch, the last batch boundary before it is found the same way. What is only sent on is lent where
the file does that: then only the first header, and what lies around such a boundary, are read. Rule
kept: what is returned begins with the batch that holds the offset and ends with a whole batch below
`upto`.
"""

from __future__ import annotations

import struct

from anabranch.core.errors import CorruptLog
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
        log.remember(upto, segment, limit)
        return _read_all(log, segment, offset, start, limit - start, upto, lends)
    return _read_some(log, segment, offset, start, limit, max_bytes, at_least_one, lends)


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


def _read_all(
    log: LogState, segment: Segment, offset: int, start: int, size: int, upto: int, lends: bool
) -> Piece:
    loan = segment.file.lend(start, size) if lends else None
    if loan is None:
        return _sound(log, segment, segment.file.read(start, size), offset, start)
    loan.head = _sound(log, segment, segment.file.read(start, BATCH_OVERHEAD), offset, start)
    loan.end_offset = min(upto, log.end_of(segment))
    return loan


def _read_some(
    log: LogState,
    segment: Segment,
    offset: int,
    start: int,
    limit: int,
    max_bytes: int,
    at_least_one: bool,
    lends: bool,
) -> Piece:
    """As many whole batches as fit; when not one does, that one if it is wanted."""
    wanted = min(max(max_bytes, BATCH_OVERHEAD), limit - start)
    loan = segment.file.lend(start, wanted) if lends else None
    head = segment.file.read(start, wanted if loan is None else BATCH_OVERHEAD)
    _sound(log, segment, head, offset, start)
    boundary = max(0, log.offset_index(segment).boundary_before(start + wanted) - start)
    held, skipped = head, 0
    if loan is not None:
        held, skipped = segment.file.read(start + boundary, wanted - boundary), boundary
    next_offset = -1
    while boundary - skipped + BATCH_OVERHEAD <= len(held):
        base, last, size = batch_end(log, segment, held, boundary - skipped, start + boundary)
        if boundary + size > max_bytes:
            next_offset = base
            break
        boundary += size
        next_offset = last + 1
    if boundary == 0:
        if not at_least_one:
            return b""
        _, last, size = batch_end(log, segment, held, 0, start)
        log.remember(last + 1, segment, start + size)
        return segment.file.read(start, size)
    if next_offset >= 0:
        log.remember(next_offset, segment, start + boundary)
    if loan is None:
        return memoryview(held)[:boundary]
    loan.head, loan.length, loan.end_offset = head, boundary, next_offset
    return loan


def _sound(log: LogState, segment: Segment, held: Buffer, offset: int, start: int) -> Buffer:
    """The bytes read, if they begin with the batch that was looked for."""
    if len(held) < BATCH_OVERHEAD:
        raise rot(log, segment, start)
    _, last, _ = batch_end(log, segment, held, 0, start)
    if last < offset:
        raise rot(log, segment, start)
    return held
