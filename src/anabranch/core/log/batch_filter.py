"""A batch with only some of its records: the same place in the log, the same producer, fewer bytes.

    kept as it was   base offset, last offset delta, leader epoch, producer id, epoch and sequence,
                     codec, offsets and timestamps of the records that stay
    new              length, record count, max timestamp, checksum; perhaps a delete horizon

Records are copied as bytes: their deltas stay right since the base does. A *delete horizon* (when a
tombstone or marker may go) is kept as Kafka keeps it: attribute bit 6 says that the base timestamp
is the horizon, so timestamp deltas are then written anew. Source: KIP-534. Not here: which records
stay (`compaction`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.log.record_walk import Place
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    PREFIX,
    BatchHeader,
    renew_crc,
)
from anabranch.core.wire.compression import Codec, compress
from anabranch.core.wire.records import to_int64

LEVELS = {Codec.GZIP: 6, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's default level of each codec: the producer's own is not known any more."""


def rewritten(
    header: BatchHeader, plain: bytes, kept: Sequence[Place], horizon_ms: int | None
) -> bytearray:
    """A batch with the records `kept` (perhaps none); `horizon_ms` sets its delete horizon."""
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    if horizon_ms is None:
        body: Buffer = b"".join([plain[place.start : place.end] for place in kept])
    else:
        attributes |= DELETE_HORIZON_BIT
        shift = base_timestamp - horizon_ms
        body = b"".join([_shifted(plain, place, shift) for place in kept])
    max_timestamp = header.max_timestamp
    if kept and not header.log_append_time:
        max_timestamp = max(to_int64(base_timestamp + place.timestamp_delta) for place in kept)
    codec = Codec(header.codec)
    if not kept:  # as Kafka has them: plain, and with no horizon
        attributes &= ~(CODEC_MASK | DELETE_HORIZON_BIT)
        base_timestamp = max_timestamp
    elif codec is not Codec.NONE:
        body = compress(codec, body, LEVELS.get(codec))
    batch = bytearray(BATCH_OVERHEAD)
    HEADER.pack_into(
        batch, 0, header.base_offset, BATCH_OVERHEAD - PREFIX + len(body), header.leader_epoch,
        header.magic, 0, attributes, header.last_offset_delta,
        base_timestamp if horizon_ms is None else horizon_ms, max_timestamp, header.producer_id,
        header.producer_epoch, header.base_sequence, len(kept),
    )  # fmt: skip
    batch += body
    renew_crc(batch, 0, len(batch))
    return batch


def _shifted(plain: bytes, place: Place, shift: int) -> bytes:
    """A record whose timestamp delta counts from another base."""
    position = place.start
    while plain[position] >= 0x80:
        position += 1
    attributes_at = position + 1
    position = attributes_at + 1
    while plain[position] >= 0x80:
        position += 1
    delta = _varint(to_int64(place.timestamp_delta + shift))
    tail = plain[attributes_at : attributes_at + 1] + delta + plain[position + 1 : place.end]
    return _varint(len(tail)) + tail


def _varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
