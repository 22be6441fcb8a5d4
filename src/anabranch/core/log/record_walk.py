"""Where the records of a batch lie, which of them stay, and which is the first that is not older
than a time: all that compaction and ListOffsets need of them.

A record is `length varint | attributes int8 | timestamp delta varint | offset delta varint | key
length varint, key | value length varint, value | headers`. Value and headers are not looked into.
Why not `decode_records`, and why the loops are written out: compaction reads every record of a log
twice, a look-up by time reads a batch of a megabyte while no client is answered, and an object or a
call for each record would cost more than all the rest. Varints of one and two
bytes, which nearly all are, are read in place. Rule kept: a shape that cannot be is
`ProtocolError`, as everywhere. Source: KIP-98.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.batch import BATCH_OVERHEAD, MAGIC, BatchHeader
from anabranch.core.wire.compression import Codec, decompress
from anabranch.core.wire.records import DEFAULT_LIMIT_BYTES, FARTHEST_TIME, to_int64

ANY_DELTA = -(1 << 64)
"""Less than the difference of any two timestamps."""
_INT64_MASK = (1 << 64) - 1


class Place(NamedTuple):
    """One record within the plain bytes of its batch."""

    start: int
    end: int
    timestamp_delta: int
    has_value: bool


def plain_records(chunk: bytes, at: int, header: BatchHeader) -> tuple[bytes, int]:
    """(buffer, position) of the records of the batch at `at`; decompressed, if need be, into a
    buffer of their own."""
    if header.codec == Codec.NONE:
        return chunk, at + BATCH_OVERHEAD
    packed = memoryview(chunk)[at + BATCH_OVERHEAD : at + header.size_bytes]
    try:
        codec = Codec(header.codec)
    except ValueError:
        raise _bad(header, f"{header.codec} is no codec") from None
    return bytes(decompress(codec, packed, limit_bytes=DEFAULT_LIMIT_BYTES)), 0


def note_keys(plain: bytes, position: int, header: BatchHeader, newest: dict[bytes, int]) -> int:
    """Put the offset of each record under its key; bytes of all keys together."""
    first, total = header.base_offset, 0
    try:
        for _ in range(header.record_count):
            if (byte := plain[position]) < 0x80:
                end = position + 1 + (byte >> 1)
                position += 2
            elif (more := plain[position + 1]) < 0x80:
                end = position + 2 + (more << 6 | (byte & 0x7F) >> 1)
                position += 3
            else:
                size, position = _varint(plain, position)
                end, position = position + size, position + 1
            while plain[position] >= 0x80:
                position += 1
            position += 1
            if (byte := plain[position]) < 0x80:
                offset, position = first + (byte >> 1), position + 1
            else:
                delta, position = _varint(plain, position)
                offset = first + delta
            if (byte := plain[position]) < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = _varint(plain, position)
            if size >= 0:
                newest[plain[position : position + size]] = offset
                total += size
                position += size
            if position >= end:
                raise IndexError
            position = end
    except IndexError:
        raise _bad(header, "the records end early") from None
    if position > len(plain):
        raise _bad(header, "the last record does not fit")
    return total


def survivors(
    plain: bytes,
    position: int,
    header: BatchHeader,
    newest: Mapping[bytes, int],
    *,
    keep_deletes: bool = True,
) -> list[Place]:
    """The records with a key of which nothing newer is known; without `keep_deletes` no
    tombstones."""
    first, newest_of = header.base_offset, newest.get
    found: list[Place] = []
    try:
        for _ in range(header.record_count):
            start = position
            if (byte := plain[position]) < 0x80:
                end = position + 1 + (byte >> 1)
                position += 2
            elif (more := plain[position + 1]) < 0x80:
                end = position + 2 + (more << 6 | (byte & 0x7F) >> 1)
                position += 3
            else:
                size, position = _varint(plain, position)
                end, position = position + size, position + 1
            time_at = position
            while plain[position] >= 0x80:
                position += 1
            delta, position = _varint(plain, position + 1)
            size, position = _varint(plain, position)
            if size >= 0:
                key = plain[position : position + size]
                position += size
                has_value = not plain[position] & 1  # a length below zero is odd in zigzag
                if newest_of(key, -1) <= first + delta and (has_value or keep_deletes):
                    found.append(Place(start, end, _varint(plain, time_at)[0], has_value))
            if position >= end:
                raise IndexError
            position = end
    except IndexError:
        raise _bad(header, "the records end early") from None
    if position > len(plain):
        raise _bad(header, "the last record does not fit")
    return found


def first_not_older(
    batch: bytes, header: BatchHeader, timestamp: int, first_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record of a batch that is at or after both, if one is."""
    if header.log_append_time and header.max_timestamp < timestamp:
        return None
    plain, position = plain_records(batch, 0, header)
    base, base_offset = header.base_timestamp, header.base_offset
    least = ANY_DELTA if header.log_append_time else timestamp - base
    may_wrap = not -FARTHEST_TIME <= base <= FARTHEST_TIME
    last = len(plain)
    try:
        for _ in range(header.record_count):
            if (byte := plain[position]) < 0x80:
                end = position + 1 + (byte >> 1)
                position += 2
            elif (more := plain[position + 1]) < 0x80:
                end = position + 2 + (more << 6 | (byte & 0x7F) >> 1)
                position += 3
            else:
                size, position = _varint(plain, position)
                end, position = position + size, position + 1
            if (byte := plain[position]) < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (more := plain[position + 1]) < 0x80:
                byte += (more - 1) << 7
                delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                delta, position = _varint(plain, position)
                if not -FARTHEST_TIME <= delta <= FARTHEST_TIME:
                    may_wrap = True
            if may_wrap:
                delta = to_int64(base + delta) - base
            if position >= end or end > last:
                raise IndexError
            if delta >= least:
                offset = base_offset + _varint(plain, position)[0]
                if offset >= first_offset:
                    if not base_offset <= offset <= header.last_offset:
                        raise _bad(header, "a record is out of range")
                    return header.max_timestamp if header.log_append_time else base + delta, offset
            position = end
    except IndexError:
        raise _bad(header, "the records end early") from None
    return None


def _bad(header: BatchHeader, why: str) -> ProtocolError:
    where = f"in the batch at offset {header.base_offset} {why}"
    return ProtocolError("RecordBatch", MAGIC, "records", BATCH_OVERHEAD, where)


def _varint(plain: bytes, position: int) -> tuple[int, int]:
    byte = plain[position]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        position += 1
        byte = plain[position]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise IndexError
    if shift == 70:
        value &= _INT64_MASK
    return (value >> 1) ^ -(value & 1), position + 1
