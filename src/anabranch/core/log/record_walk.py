"""Where each record of a batch lies, and its key: all that compaction needs of records.

A record is `length varint | attributes int8 | timestamp delta varint | offset delta varint | key
length varint, key | value length varint, value | headers`. Value and headers are not looked into.
Why not `decode_records`: it makes an object of every field, and compaction reads every record of a
log twice. Rule kept: a shape that cannot be is `ProtocolError`, as everywhere. Source: KIP-98.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BATCH_OVERHEAD, MAGIC, BatchHeader
from anabranch.core.wire.compression import Codec, decompress
from anabranch.core.wire.records import DEFAULT_LIMIT_BYTES


class Place(NamedTuple):
    """One record within the plain bytes of its batch."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def plain_records(batch: Buffer, header: BatchHeader) -> bytes:
    """The bytes of a batch's records, decompressed."""
    packed = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    if header.codec == Codec.NONE:
        return bytes(packed)
    return bytes(decompress(Codec(header.codec), packed, limit_bytes=DEFAULT_LIMIT_BYTES))


def places(plain: bytes, header: BatchHeader) -> list[Place]:
    """Every record of a batch, in order; raises ProtocolError where the bytes are not records."""
    found: list[Place] = []
    try:
        _walk(plain, header.record_count, found)
    except IndexError:
        raise _bad(header, "the records end early") from None
    if found and found[-1].end > len(plain):
        raise _bad(header, "the last record does not fit")
    return found


def _bad(header: BatchHeader, why: str) -> ProtocolError:
    return ProtocolError(
        "RecordBatch", MAGIC, "records", BATCH_OVERHEAD, f"{header.base_offset}: {why}"
    )


def _walk(plain: bytes, count: int, found: list[Place]) -> None:
    """The loop is written out for varints of one and two bytes, which nearly all are."""
    append = found.append
    position = 0
    for _ in range(count):
        start = position
        size, position = _varint(plain, position)
        end = position + size
        position += 1
        timestamp_delta, position = _varint(plain, position)
        byte = plain[position]
        if byte < 0x80:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            offset_delta, position = _varint(plain, position)
        byte = plain[position]
        if byte < 0x80:
            size, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            size, position = _varint(plain, position)
        key = None
        if size >= 0:
            key = plain[position : position + size]
            position += size
        has_value = not plain[position] & 1  # a length below zero is odd in zigzag
        append(Place(start, end, timestamp_delta, offset_delta, key, has_value))
        if end <= position:
            raise IndexError
        position = end


def _varint(plain: bytes, position: int) -> tuple[int, int]:
    byte = plain[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    position += 1
    byte = plain[position]
    if byte < 0x80:
        value |= byte << 7
        return (value >> 1) ^ -(value & 1), position + 1
    shift = 7
    while byte >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        byte = plain[position]
        if shift > 63:
            raise IndexError
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1
