"""Records inside a batch of magic 2: decoding them all, and building a batch of them.

    record:  length varint | attributes int8 | timestamp delta varlong | offset delta varint |
             key length varint, key | value length varint, value | header count varint, headers
    header:  key length varint, key | value length varint, value

Varints are zigzag; a length of -1 is null. Source: KIP-98. The node's data path never comes here:
records stay opaque, but for compacted topics and for topics with a codec of their own.

Rules kept: every length is bounded by the bytes that remain, counts must agree with the header, and
no byte may be left over; ProtocolError is the only exception that decoding raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    renew_crc,
)
from anabranch.core.wire.compression import Codec, compress, decompress

DEFAULT_LIMIT_BYTES = 128 << 20
"""Plain bytes of one batch: far over any max.message.bytes in use, far under a bomb."""
FARTHEST_TIME = 1 << 61
"""Sums of a base timestamp and a delta within this, in milliseconds, cannot leave 64 bits."""
_LEAST_INT64, _INT64_MASK = -(1 << 63), (1 << 64) - 1
_LAST_SHIFT = 63
"""Of the tenth byte of a varint, of which only one bit has room."""
SMALLEST_RECORD_BYTES = 7
"""Length, attributes, two deltas, two null lengths and no headers, one byte each."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. `offset` is absolute, `timestamp` in milliseconds since 1970 (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def to_int64(number: int) -> int:
    """A sum of timestamps as 64 bits hold it: it wraps as Kafka's `long` does."""
    return ((number - _LEAST_INT64) & _INT64_MASK) + _LEAST_INT64


class Malformed(Exception):
    """Where and how the records are not what they claim to be."""


def decode_records(
    buffer: Buffer, position: int = 0, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> list[Record]:
    """All records of the batch at `position`; the checksum is the caller's matter.

    Raises ProtocolError for a bad shape, an unknown codec, or more than `limit_bytes` plain bytes.
    """
    header = read_header(buffer, position)
    end = position + header.size_bytes
    if header.magic != MAGIC or end > len(buffer):
        raise _refusal(position, f"magic {header.magic}, {len(buffer) - position} bytes remain")
    if header.codec > Codec.ZSTD:
        raise _refusal(position, f"codec {header.codec} is unknown")
    packed = memoryview(buffer)[position + BATCH_OVERHEAD : end]
    if header.codec:
        plain = bytes(decompress(Codec(header.codec), packed, limit_bytes=limit_bytes))
    else:
        plain = bytes(packed)
    count = header.record_count
    if not 0 <= count <= len(plain) // SMALLEST_RECORD_BYTES:
        raise _refusal(position, f"{count} records cannot be in {len(plain)} bytes")
    try:
        return _decode_all(plain, header)
    except (IndexError, Malformed) as problem:
        detail = "the records end early" if isinstance(problem, IndexError) else str(problem)
        raise _refusal(position, detail) from None


def _refusal(position: int, detail: str) -> ProtocolError:
    return ProtocolError("RecordBatch", MAGIC, "records", position + BATCH_OVERHEAD, detail)


def _varint(plain: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = plain[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == _LAST_SHIFT:
                value &= _INT64_MASK
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise Malformed("a varint is longer than ten bytes")


def _decode_all(plain: bytes, header: BatchHeader) -> list[Record]:
    """The loop is written out for one-byte varints and two-byte lengths, which nearly all are;
    `tuple.__new__` spares a call, since the constructor of a named tuple is written in Python."""
    records: list[Record] = []
    append, new = records.append, tuple.__new__
    end = len(plain)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.log_append_time else None
    may_wrap = not -FARTHEST_TIME <= base_timestamp <= FARTHEST_TIME
    last_delta = -1
    position = 0
    for _ in range(header.record_count):
        byte = plain[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif (high := plain[position + 1]) < 0x80:
            byte += (high - 1) << 7
            size, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            size, position = _varint(plain, position)
        record_end = position + size
        if size <= 0 or record_end > end:
            raise Malformed(f"a record of {size} bytes does not fit")
        position += 1
        byte = plain[position]
        if byte < 0x80:
            timestamp, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            timestamp, position = _varint(plain, position)
            if not -FARTHEST_TIME <= timestamp <= FARTHEST_TIME:
                may_wrap = True
        byte = plain[position]
        if byte < 0x80:
            delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            delta, position = _varint(plain, position)
        if not last_delta < delta <= header.last_offset_delta:
            raise Malformed(f"offset delta {delta} is out of order")
        last_delta = delta
        byte = plain[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            size, position = _varint(plain, position)
        if size < 0:
            key = None
        else:
            key = plain[position : position + size]
            position += size
        byte = plain[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        elif (high := plain[position + 1]) < 0x80:
            byte += (high - 1) << 7
            size, position = (byte >> 1) ^ -(byte & 1), position + 2
        else:
            size, position = _varint(plain, position)
        if size < 0:
            value = None
        else:
            value = plain[position : position + size]
            position += size
        headers: Headers = ()
        if position >= record_end:
            raise Malformed("a record is longer than its length")
        if plain[position]:
            headers, position = _headers(plain, position, record_end)
        else:
            position += 1
        if position != record_end:
            raise Malformed("a record's length does not match its fields")
        at = base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp
        if may_wrap:
            at = to_int64(at)
        append(new(Record, (base_offset + delta, at, key, value, headers)))
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")
    return records


def _headers(plain: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _varint(plain, position)
    if not 0 <= count <= (end - position) // 2:
        raise Malformed(f"{count} headers cannot be in {end - position} bytes")
    headers = []
    for _ in range(count):
        size, position = _varint(plain, position)
        if not 0 <= size <= end - position:
            raise Malformed(f"a header key of {size} bytes does not fit")
        key = str(plain[position : position + size], "utf-8", "replace")
        size, position = _varint(plain, position + size)
        if size > end - position:
            raise Malformed(f"a header value of {size} bytes does not fit")
        headers.append((key, plain[position : position + size] if size >= 0 else None))
        position += max(size, 0)
    return tuple(headers), position


def _put_varint(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        _put_varint(out, len(value))
        out += value


def _varint_bytes(number: int) -> bytes:
    out = bytearray()
    _put_varint(out, number)
    return bytes(out)


_SHORT = 1024
"""Lengths and deltas below this are looked up: those of nearly all records that a node makes."""
_VARINTS = tuple(_varint_bytes(number) for number in range(_SHORT))
_FURTHEST = 1 << 31
"""Offset deltas are int32. A large one has at most five bytes, so that the record's own length,
which has room for 16 beside key and value, is still looked up."""
_NULL = _varint_bytes(-1)
"""The length of what is absent."""


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record with its length, relative to its batch."""
    offset, timestamp, key, value, headers = record
    if value is None or headers or len(key or b"") + len(value) > _SHORT - 16:
        return _encode_any(record, base_offset, base_timestamp)
    later, further = timestamp - base_timestamp, offset - base_offset
    if not (0 <= later < _SHORT and 0 <= further < _FURTHEST):
        return _encode_any(record, base_offset, base_timestamp)
    known = _VARINTS
    distance = known[further] if further < _SHORT else _varint_bytes(further)
    body = b"".join(
        (
            b"\0", known[later], distance,
            _NULL if key is None else known[len(key)], key or b"", known[len(value)], value, b"\0",
        )
    )  # fmt: skip
    return known[len(body)] + body


def _encode_any(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = bytearray(1)
    _put_varint(body, to_int64(record.timestamp - base_timestamp))
    _put_varint(body, record.offset - base_offset)
    _put_bytes(body, record.key)
    _put_bytes(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_bytes(body, key.encode())
        _put_bytes(body, value)
    framed = bytearray()
    _put_varint(framed, len(body))
    return bytes(framed + body)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch of at least one record; offsets are the records' own, rising, from `base_offset` on.

    `log_append_time` sets the attribute bit and the max timestamp to that time, in milliseconds.
    """
    base_timestamp = records[0].timestamp
    plain = b"".join([encode_record(record, base_offset, base_timestamp) for record in records])
    attributes = int(codec)
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    max_timestamp = base_timestamp
    if len(records) > 1:
        max_timestamp = max([record.timestamp for record in records])
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time
    body = compress(codec, plain, level)
    batch = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        batch, 0, base_offset, BATCH_OVERHEAD - PREFIX + len(body), leader_epoch, MAGIC, 0,
        attributes, records[-1].offset - base_offset, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    batch += body
    renew_crc(batch, 0, len(batch))
    return batch
