"""Record batches of magic 2: looking at the header, patching it, without touching the records.

    offset  0  base offset             int64
            8  batch length            int32   bytes that follow this field
           12  partition leader epoch  int32
           16  magic                   int8    2
           17  CRC-32C                 uint32  covers everything from `attributes` to the end
           21  attributes              int16   0-2 codec, 3 LogAppendTime, 4 transactional,
                                               5 control, 6 delete horizon
           23  last offset delta       int32
           27  base timestamp          int64
           35  max timestamp           int64
           43  producer id             int64
           51  producer epoch          int16
           53  base sequence           int32
           57  record count            int32
           61  records

Base offset and leader epoch lie outside the checksum, so a leader patches them in place and the
rest stays as the client sent it. Source: KIP-98. Not here: records (records.py), codecs
(compression.py), older magics, which Kafka 4 does not write either.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any, NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.crc import crc32c

BATCH_OVERHEAD = 61
PREFIX = 12
"""Base offset and batch length: what must be read to know how long a batch is."""
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21

HEADER = Struct(">qiibIhiqqqhii")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMPS = Struct(">qq")
TIMESTAMPS_AT = 27
PRODUCER = Struct(">qhi")
PRODUCER_AT = 43

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
SEQUENCE_MODULUS = 1 << 31


class BatchHeader(NamedTuple):
    """The fixed part of a batch. `size_bytes` counts the whole batch with its 12-byte prefix."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """Compression codec, 0 to 4 (see compression.Codec); 5 to 7 mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the timestamps are the leader's: all records then have `max_timestamp`."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the one record is a marker for brokers, not for consumers."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether compaction put the time after which tombstones go into `base_timestamp`."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def newest_timestamp(self) -> int:
        """The largest timestamp of its records, -1 when compaction left none of them."""
        return self.max_timestamp if self.record_count else -1

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def read_header(
    buffer: Buffer, position: int = 0,
    _unpack: Any = HEADER.unpack_from, _new: Any = tuple.__new__,
) -> BatchHeader:  # fmt: skip
    """The header of the batch at `position`.

    Raises ProtocolError when fewer than 61 bytes remain or the length is smaller than a header's.
    Nothing else is judged here: the caller checks magic, size against what it holds, and checksum.
    The constructor of a named tuple is written in Python: `tuple.__new__` spares its call.
    """
    try:
        fields = _unpack(buffer, position)
    except error:
        detail = f"{max(0, len(buffer) - position)} bytes remain, a header has {BATCH_OVERHEAD}"
        raise ProtocolError("RecordBatch", MAGIC, "header", position, detail) from None
    length = fields[1]
    if length < BATCH_OVERHEAD - PREFIX:
        detail = f"length {length} is smaller than a header"
        raise ProtocolError("RecordBatch", MAGIC, "batch length", position + 8, detail)
    header: BatchHeader = _new(BatchHeader, (fields[0], length + PREFIX, *fields[2:]))
    return header


def walk(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; a partial batch at the end is left out.

    Raises ProtocolError when a length is impossible.
    """
    end = len(buffer)
    while end - position >= BATCH_OVERHEAD:
        header = read_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def crc_is_valid(buffer: Buffer, position: int, size_bytes: int) -> bool:
    """Whether the checksum of the batch at `position` matches its bytes."""
    view = memoryview(buffer)[position + ATTRIBUTES_AT : position + size_bytes]
    (stored,) = _CRC.unpack_from(buffer, position + CRC_AT)
    return bool(crc32c(view) == stored)


def patch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Give the batch at `position` its place in the log, in the buffer itself."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + PREFIX, leader_epoch)


def patch_log_append_time(
    buffer: bytearray | memoryview, position: int, size_bytes: int, now_ms: int
) -> None:
    """Stamp the batch with the leader's time and renew its checksum, in the buffer itself.

    As Kafka does: the attribute bit is set, `max_timestamp` becomes now, `base_timestamp` stays.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_AT)
    base_timestamp, _ = _TIMESTAMPS.unpack_from(buffer, position + TIMESTAMPS_AT)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMPS.pack_into(buffer, position + TIMESTAMPS_AT, base_timestamp, now_ms)
    renew_crc(buffer, position, size_bytes)


def patch_producer(
    buffer: bytearray | memoryview, position: int, size_bytes: int,
    *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool = False,
) -> None:  # fmt: skip
    """Say who wrote the batch, in a transaction or not, and its first sequence number, and renew
    the checksum, in place."""
    PRODUCER.pack_into(buffer, position + PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_AT)
    attributes &= ~TRANSACTIONAL_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    renew_crc(buffer, position, size_bytes)


def renew_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Write the checksum that the bytes of the batch have now."""
    view = memoryview(buffer)[position + ATTRIBUTES_AT : position + size_bytes]
    _CRC.pack_into(buffer, position + CRC_AT, crc32c(view))
