"""Reading the headers of a log's batches from its simulated disk, without the log's own code.

What: every batch as the few numbers by which copies are compared. The bytes are those that the
process sees; they are taken from the disk's files directly, so that looking counts no call of the
disk and sets off none of its faults. Rule kept: nothing is trusted but the segments' names, sizes
and the bytes; a batch that does not fit where it lies is told as such.

    offset  0  base offset  int64     12  leader epoch  int32     23  last offset delta  int32
            8  length       int32     17  CRC-32C       uint32    43  producer id        int64
                                                                  51  producer epoch     int16
                                                                  53  base sequence      int32
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.wire.batch import BATCH_OVERHEAD

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.sim.disk import SimDisk

_HEADER = Struct(">qiixIxxi16xqhi")
_LENGTH_STARTS = 12


class Entry(NamedTuple):
    """One batch. Two batches are the same record for record when all of this is equal."""

    base: int
    end: int
    """The offset after its last."""
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    sequence: int


NOTHING: frozenset[Entry] = frozenset()


class Unreadable(Exception):
    """No batch begins where one must."""


Position = tuple[int, int]
"""Where the next batch of a log will be: its segment's first offset, and the byte in it."""
BEGIN: Position = (-1, 0)


def read_entries(
    disk: SimDisk, log: Log, start: Position
) -> Iterator[tuple[Entry, Position, bytes | bytearray]]:
    """Every batch from a position on, each with the position after it and its bytes."""
    for segment in log.segments:
        base_offset = segment.base_offset
        if base_offset < start[0]:
            continue
        at = start[1] if base_offset == start[0] else 0
        inode = disk.names.get(segment.stem + ".log")
        seen = b"" if inode is None else inode.seen
        while at < segment.size:
            entry, size = _entry(seen, at, segment.size)
            at += size
            yield entry, (base_offset, at), seen[at - size : at]


def entries_of(data: bytes) -> Iterator[Entry]:
    """Every batch of a segment's bytes. Raises Unreadable."""
    at = 0
    while at < len(data):
        entry, size = _entry(data, at, len(data))
        at += size
        yield entry


def unsynced_entries(disk: SimDisk, log: Log, first: int) -> Iterator[Entry]:
    """The batches from the segment that has an offset on of which a power cut may leave something
    else: the bytes, the file's name or the folder's are not on stable storage."""
    segments = log.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= first:
            continue
        path = segment.stem + ".log"
        inode = disk.names.get(path)
        is_named = disk.stored_names.get(path) is inode and log.folder in disk.stored_names
        seen = b"" if inode is None else inode.seen
        stored = b"" if inode is None or not is_named else inode.stored
        at = 0
        while at < segment.size:
            entry, size = _entry(seen, at, segment.size)
            if stored[at : at + size] != seen[at : at + size]:
                yield entry
            at += size


def _entry(seen: bytes | bytearray, at: int, end: int) -> tuple[Entry, int]:
    if at + BATCH_OVERHEAD > min(end, len(seen)):
        raise Unreadable(f"{end - at} bytes at {at} are no batch")
    base, length, epoch, crc, delta, producer_id, producer_epoch, sequence = _HEADER.unpack_from(
        seen, at
    )
    size = length + _LENGTH_STARTS
    if size < BATCH_OVERHEAD or at + size > end or delta < 0:
        raise Unreadable(f"the batch at {at} says that it has {size} bytes")
    fields = (base, base + delta + 1, epoch, crc, producer_id, producer_epoch, sequence)
    return tuple.__new__(Entry, fields), size
