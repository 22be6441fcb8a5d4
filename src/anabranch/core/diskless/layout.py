"""What is in a diskless object: record batches of many partitions, and where each one lies.

    header    30 bytes and the cluster id
      magic            8   "ANBR-OBJ"
      format           2   2 (1 would be batches alone, without header and index)
      header size      2   with the checksum
      broker id        4
      object id        8
      length           2   of the cluster id
      cluster id       n   UTF-8
      CRC32C           4   of the header before it
    batches   record batches v2 as producers sent them, by (topic id, partition), then by arrival
    index     44 bytes for each partition
      topic id        16
      partition        4
      byte offset      4   of its first batch in the object
      byte size        4   of its batches, which lie side by side
      batches          4
      records          4
      max timestamp    8
    footer    40 bytes
      CRC32C           4   of the index and of the footer after these 4 bytes
      CRC32C           4   of header and batches
      entries          4   of the index
      object id        8
      index offset     4
      tail size        4   of index and footer
      format           2
      reserved         2   0
      magic            8   "ANBR-OBJ"

All integers are big-endian. Why: an object can be read without the coordinator, by disaster
recovery or by Spark. Readers that know a batch's position read that range alone. Rule kept: each
byte is under a checksum, and what does not fit raises DamagedObject with the object's name and the
position. Not here: which offsets the batches have; those are the coordinator's and the manifests'.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer, TopicId
from anabranch.core.wire.crc import crc32c

MAGIC = b"ANBR-OBJ"
FORMAT = 2
MOST_BYTES = 1 << 31
"""An object is smaller, so that positions fit into four bytes and readers' signed integers."""
MOST_CLUSTER_ID = 1 << 10
"""Bytes of a cluster id: Kafka's are 22 characters."""
_START = Struct(">8sHHiqH")
_CRC = Struct(">I")
_ENTRY = Struct(">16siIIIIq")
_FOOTER = Struct(">IIIqIIHH8s")
ENTRY_SIZE = _ENTRY.size
FOOTER_SIZE = _FOOTER.size
HEADER_MOST = _START.size + MOST_CLUSTER_ID + _CRC.size
"""No header is longer: reading so many bytes suffices."""


class DamagedObject(StorageFault):
    """An object is not what was written: cut, overwritten, or of a format that is not known."""

    def __init__(self, place: str, position: int, detail: str) -> None:
        super().__init__(f"{place}, byte {position}: {detail}")
        self.place = place
        self.position = position


class Header(NamedTuple):
    """Where an object comes from."""

    cluster_id: str
    broker_id: int
    object_id: int


class Piece(NamedTuple):
    """One record batch to be stored."""

    key: LogKey
    records: Buffer
    record_count: int
    max_timestamp: int


class Entry(NamedTuple):
    """The batches of one partition in an object."""

    key: LogKey
    byte_offset: int
    byte_size: int
    batch_count: int
    record_count: int
    max_timestamp: int


class Encoded(NamedTuple):
    """An object to be put: its buffers in order, and where each piece lies, in the given order."""

    buffers: list[Buffer]
    byte_size: int
    positions: list[int]


class ObjectTail(NamedTuple):
    """Index and footer of an object."""

    object_id: int
    index_offset: int
    body_crc: int
    entries: list[Entry]


def encode(header: Header, pieces: Sequence[Piece]) -> Encoded:
    """An object of these batches, without copying one of them. Raises ValueError if it were
    larger than MOST_BYTES."""
    groups: dict[LogKey, list[int]] = {}
    for at, piece in enumerate(pieces):
        groups.setdefault(piece.key, []).append(at)
    start = _encode_header(header)
    buffers: list[Buffer] = [start]
    positions = [0] * len(pieces)
    entries: list[bytes] = []
    crc, position = crc32c(start), len(start)
    for key in sorted(groups):
        first, records, newest = position, 0, -1
        for at in groups[key]:
            _, batch, record_count, timestamp = pieces[at]
            buffers.append(batch)
            positions[at] = position
            crc = crc32c(batch, crc)
            position += len(batch)
            records += record_count
            if timestamp > newest:
                newest = timestamp
        if position >= MOST_BYTES:
            raise ValueError(f"an object of {position} bytes; {MOST_BYTES - 1} is the most")
        size, batches = position - first, len(groups[key])
        entries.append(_ENTRY.pack(*key, first, size, batches, records, newest))
    tail = _encode_tail(header.object_id, position, crc, entries)
    buffers.append(tail)
    return Encoded(buffers, position + len(tail), positions)


def _encode_header(header: Header) -> bytes:
    name = header.cluster_id.encode()
    if len(name) > MOST_CLUSTER_ID:
        raise ValueError(f"a cluster id of {len(name)} bytes; {MOST_CLUSTER_ID} is the most")
    size = _START.size + len(name) + _CRC.size
    start = _START.pack(MAGIC, FORMAT, size, header.broker_id, header.object_id, len(name)) + name
    return start + _CRC.pack(crc32c(start))


def _encode_tail(object_id: int, position: int, body_crc: int, entries: list[bytes]) -> bytes:
    index = b"".join(entries)
    tail_size = len(index) + FOOTER_SIZE
    footer = _FOOTER.pack(
        0, body_crc, len(entries), object_id, position, tail_size, FORMAT, 0, MAGIC
    )[_CRC.size :]
    return index + _CRC.pack(crc32c(footer, crc32c(index))) + footer


def decode_header(head: Buffer, place: str) -> Header:
    """The header at the start of `head`, which is HEADER_MOST bytes or the whole object.

    Raises DamagedObject, naming `place`."""
    if len(head) < _START.size + _CRC.size:
        raise DamagedObject(place, len(head), "it ends within its header")
    magic, form, size, broker_id, object_id, name_size = _START.unpack_from(head)
    _check_magic(magic, form, place, 0)
    end = size - _CRC.size
    if end != _START.size + name_size or size > len(head):
        raise DamagedObject(place, 10, f"a header of {size} bytes cannot be")
    if _CRC.unpack_from(head, end)[0] != crc32c(memoryview(head)[:end]):
        raise DamagedObject(place, end, "the header's checksum is wrong")
    try:
        name = bytes(head[_START.size : end]).decode()
    except UnicodeDecodeError:
        raise DamagedObject(place, _START.size, "the cluster id is no text") from None
    return Header(name, broker_id, object_id)


def _check_magic(magic: bytes, form: int, place: str, position: int) -> None:
    if magic != MAGIC:
        raise DamagedObject(place, position, "this is no object of Anabranch, or it was cut")
    if form != FORMAT:
        detail = f"format {form} is not known, {FORMAT} is; a newer version may read it"
        raise DamagedObject(place, position, detail)


def tail_size(end: Buffer, byte_size: int, place: str) -> int:
    """How many bytes at the end of an object are index and footer; `end` is what it ends with, at
    least FOOTER_SIZE bytes. Raises DamagedObject."""
    return _footer(end, byte_size, place)[5]


def _footer(end: Buffer, byte_size: int, place: str) -> tuple[int, int, int, int, int, int]:
    """CRC, body's CRC, entries, object id, index offset, tail size."""
    at = byte_size - FOOTER_SIZE
    if len(end) < FOOTER_SIZE:
        raise DamagedObject(place, max(0, at), "it ends within its footer")
    *fields, form, reserved, magic = _FOOTER.unpack_from(end, len(end) - FOOTER_SIZE)
    _check_magic(magic, form, place, byte_size - len(MAGIC))
    crc, body_crc, count, object_id, position, size = fields
    if reserved or size != count * ENTRY_SIZE + FOOTER_SIZE or position + size != byte_size:
        raise DamagedObject(place, at, "its footer does not fit to its size")
    return crc, body_crc, count, object_id, position, size


def decode_index(tail: Buffer, byte_size: int, place: str) -> ObjectTail:
    """Index and footer: `tail` is what an object of `byte_size` bytes ends with, at least
    `tail_size` bytes. Raises DamagedObject."""
    crc, body_crc, _, object_id, index_offset, size = _footer(tail, byte_size, place)
    if len(tail) < size:
        raise DamagedObject(place, index_offset, f"{len(tail)} bytes of a tail of {size}")
    held = memoryview(tail)[len(tail) - size :]
    index = held[:-FOOTER_SIZE]
    if crc != crc32c(held[len(index) + _CRC.size :], crc32c(index)):
        raise DamagedObject(place, index_offset, "the index's checksum is wrong")
    entries = [
        Entry(LogKey(TopicId(topic_id), partition), *rest)
        for topic_id, partition, *rest in _ENTRY.iter_unpack(index)
    ]
    _check_entries(entries, index_offset, place)
    return ObjectTail(object_id, index_offset, body_crc, entries)


def _check_entries(entries: list[Entry], index_offset: int, place: str) -> None:
    """Partitions rise, and their batches fill the object from its header to its index."""
    expected = entries[0].byte_offset if entries else index_offset
    previous: LogKey | None = None
    for number, entry in enumerate(entries):
        at = index_offset + number * ENTRY_SIZE
        if previous is not None and entry.key <= previous:
            raise DamagedObject(place, at, "the index is out of order")
        if entry.byte_offset != expected:
            raise DamagedObject(place, at, "the index has a gap")
        previous, expected = entry.key, expected + entry.byte_size
    if expected != index_offset:
        raise DamagedObject(place, index_offset, "the index does not cover the batches")


def check_body(held: Buffer, tail: ObjectTail, place: str) -> None:
    """Whether header and batches of a whole object are what was written; raises DamagedObject."""
    if tail.body_crc != crc32c(memoryview(held)[: tail.index_offset]):
        raise DamagedObject(place, 0, "the checksum of the batches is wrong")
