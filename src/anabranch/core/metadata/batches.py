"""Metadata records as bytes: the record batches that stores, nodes and Kafka's dump tool read.

What: a batch of metadata records, and the control batches that mark a new controller epoch and the
two ends of a snapshot. Layout: record batch v2 (see `core/wire/batch.py`; CRC-32C from `attributes`
on), each record's value being Kafka's metadata frame (uvarint 1, type id, version, body). Sources:
KIP-595, KIP-630. Rule kept: a batch is what one decision committed, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from anabranch.core.errors import ProtocolError, TooOld
from anabranch.core.metadata.levels import version_at
from anabranch.core.types import Buffer, Offset
from anabranch.core.wire.batch import MAGIC, BatchHeader, crc_is_valid, read_header, walk
from anabranch.core.wire.control import (
    build_leader_change,
    build_snapshot_footer,
    build_snapshot_header,
)
from anabranch.core.wire.metadata_records import (
    ALL_RECORDS,
    MetadataRecord,
    decode_record,
    encode_record,
    read_record_head,
)
from anabranch.core.wire.records import Record, build_batch, decode_records

SNAPSHOT_BATCH_RECORDS = 128
"""Records a batch of a snapshot: enough to spread its 61 bytes thin. Each is made at one go, by a
thread that its node shares: some 2 ms. Kafka writes 1,024; while 100,000 partitions changed these
took 14 ms."""


class MetadataBatch(NamedTuple):
    """One decoded batch; control batches have no metadata records."""

    header: BatchHeader
    records: tuple[MetadataRecord, ...]

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.header.last_offset


def encode_batch(
    records: Sequence[MetadataRecord],
    *,
    base_offset: int,
    epoch: int,
    now_ms: int,
    level: int | None = None,
) -> bytes:
    """One batch with the next offsets, stamped with the controller's epoch.

    `level` of metadata.version chooses the versions of the records; None: the newest.
    """
    entries = [
        Record(Offset(base_offset + position), now_ms, None, _value(record, level), ())
        for position, record in enumerate(records)
    ]
    return bytes(build_batch(entries, base_offset=base_offset, leader_epoch=epoch))


def _value(record: MetadataRecord, level: int | None) -> bytes:
    return encode_record(record, version_at(type(record), level))


def leader_change_batch(*, base_offset: int, epoch: int, leader_id: int, now_ms: int) -> bytes:
    """The control batch with which a controller epoch begins: one record, one offset."""
    return bytes(
        build_leader_change(
            base_offset=base_offset, leader_epoch=epoch, leader_id=leader_id, now_ms=now_ms
        )
    )


def decode_batches(buffer: Buffer) -> Iterator[MetadataBatch]:
    """Whole batches in order. Raises ProtocolError on bytes that are not metadata batches."""
    for position, header in walk(buffer):
        yield decode_batch(buffer, position, header)


def decode_batch(
    buffer: Buffer, position: int = 0, header: BatchHeader | None = None
) -> MetadataBatch:
    """The batch at `position`."""
    header = header or read_header(buffer, position)
    if header.is_control:
        return MetadataBatch(header, ())
    records = decode_records(buffer, position)
    return MetadataBatch(header, tuple([decode_record(record.value or b"") for record in records]))


def understood(buffer: Buffer) -> list[MetadataBatch]:
    """As `decode_batches`, for batches that a newer version may have written, or a disk spoiled.

    Raises TooOld for a record, or a version of one, that is not known here, ProtocolError also for
    a checksum that does not match.
    """
    _check_sums(buffer)
    try:
        return list(decode_batches(buffer))
    except ProtocolError:
        unknown = _unknown_record(buffer)
        if unknown is None:
            raise
        raise TooOld(
            f"this version of Anabranch is too old for the cluster: the metadata holds {unknown}, "
            "which it cannot read; install a newer version on this node"
        ) from None


def _check_sums(buffer: Buffer) -> None:
    for position, header in walk(buffer):
        if not _is_sound(buffer, position, header):
            detail = f"the batch at offset {header.base_offset} does not match its checksum"
            raise ProtocolError("RecordBatch", header.magic, "crc", position, detail)


def _is_sound(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    return header.magic == MAGIC and crc_is_valid(buffer, position, header.size_bytes)


def _unknown_record(buffer: Buffer) -> str | None:
    """The first record that is not known, as in "PartitionRecord version 2"."""
    for position, header in walk(buffer):
        for record in () if header.is_control else decode_records(buffer, position):
            type_id, version, _ = read_record_head(record.value or b"")
            kind = ALL_RECORDS.get(type_id)
            if kind is None:
                return f"record type {type_id}"
            if version not in kind.versions:
                return f"{kind.__name__} version {version}"
    return None


def encode_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    last_contained_ms: int,
    now_ms: int,
    level: int | None = None,
) -> bytes:
    """A checkpoint file: header control batch, batches of records, footer control batch.

    Offsets in it count from 0, as in Kafka's; the state's own end offset is in the file's name.
    `level` is the state's metadata.version, see `encode_batch`.
    """
    return b"".join(
        snapshot_parts(
            records,
            epoch=epoch,
            last_contained_ms=last_contained_ms,
            now_ms=now_ms,
            level=level,
        )
    )


def snapshot_parts(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    last_contained_ms: int,
    now_ms: int,
    level: int | None = None,
) -> Iterator[bytes]:
    """The same batch by batch, each some milliseconds of work: who makes them may pause between."""
    yield bytes(build_snapshot_header(base_offset=0, leader_epoch=epoch, now_ms=last_contained_ms))
    offset = 1
    left = iter(records)
    while some := list(islice(left, SNAPSHOT_BATCH_RECORDS)):
        yield encode_batch(some, base_offset=offset, epoch=epoch, now_ms=now_ms, level=level)
        offset += len(some)
    yield bytes(build_snapshot_footer(base_offset=offset, leader_epoch=epoch, now_ms=now_ms))


def snapshot_is_whole(buffer: Buffer) -> bool:
    """Whether it is what was written, to its footer: not torn, and not spoiled by a disk since."""
    last = None
    end = 0
    try:
        for position, header in walk(buffer):
            last = header
            end = position + header.size_bytes
            if not _is_sound(buffer, position, header):
                return False
    except ProtocolError:
        return False
    return last is not None and last.is_control and end == len(buffer)
