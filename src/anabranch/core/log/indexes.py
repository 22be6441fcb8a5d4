"""The three indexes beside a segment, in memory and as Kafka's bytes.

Offset index (`.index`), 8 bytes an entry, big-endian: relative last offset of a batch int32,
position of that batch int32. Time index (`.timeindex`), 12 bytes: largest timestamp so far int64,
relative last offset of the batch that has it int32. Transaction index (`.txnindex`), 34 bytes:
version int16 (0), producer id int64, first offset int64, last offset (the marker) int64, last
stable offset int64. None has a checksum: they are hints, checked for shape when loaded and rebuilt
from the segment when they are missing or wrong.

Kept as arrays, so that a lookup is one bisection in C. The index of an active segment lives in
memory and is written when the segment is rolled or the log is closed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple

from anabranch.core.types import Buffer

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
ABORTED_ENTRY = struct.Struct(">hqqqq")
_TIME_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1
INT32_MAX = 2**31 - 1


class InvalidIndex(ValueError):
    """An index file that cannot belong to its segment: rebuild it."""


class OffsetIndex:
    """Where batches start, about one entry every index interval."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add a batch by its relative last offset."""
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def position_before(self, relative_offset: int) -> int:
        """Start of a batch at or before the one that holds the offset."""
        found = bisect_right(self.offsets, relative_offset)
        return self.positions[found - 1] if found else 0

    def bytes_before(self, relative_offset: int) -> int:
        """How far behind `position_before` the batch that holds the offset begins, at most, as far
        as there is a later entry; 0 where none tells."""
        found = bisect_right(self.offsets, relative_offset)
        if found == len(self.offsets) or (found and self.offsets[found - 1] == relative_offset):
            return 0
        return self.positions[found] - (self.positions[found - 1] if found else 0)

    def boundary_before(self, position: int) -> int:
        """The last indexed batch start at or before a position."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0

    def cut(self, position: int) -> None:
        """Forget batches that start at or after a position."""
        keep = bisect_right(self.positions, position - 1)
        del self.offsets[keep:]
        del self.positions[keep:]

    def encode(self) -> bytes:
        """Kafka's bytes."""
        entries = array("i", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
        entries[0::2] = self.offsets
        entries[1::2] = self.positions
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def decode(cls, encoded: bytes, segment_size: int) -> OffsetIndex:
        """Read Kafka's bytes; zeros at the end (a preallocated file) are dropped, if they are whole
        entries: a torn file may end within the zeros that a number begins with."""
        if len(encoded) % OFFSET_ENTRY_BYTES:
            raise InvalidIndex("the last entry is incomplete")
        used = -(-len(encoded.rstrip(b"\0")) // OFFSET_ENTRY_BYTES) * OFFSET_ENTRY_BYTES
        entries = array("i")
        entries.frombytes(encoded[:used])
        if sys.byteorder == "little":
            entries.byteswap()
        index = cls()
        index.offsets, index.positions = entries[0::2], entries[1::2]
        if not _increases(index.offsets) or not _increases(index.positions):
            raise InvalidIndex("entries are out of order")
        if used and (index.positions[-1] >= segment_size or index.positions[0] <= 0):
            raise InvalidIndex("a position lies outside of the segment")
        return index


class TimeIndex:
    """The largest timestamp up to an offset, about one entry every index interval."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless the newest one already covers this timestamp."""
        if timestamp > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """Relative offset before which every record is older than `timestamp`; 0 when unknown."""
        found = bisect_right(self.timestamps, timestamp)
        return self.offsets[found - 1] if found else 0

    def last(self) -> tuple[int, int]:
        """The largest timestamp and its relative offset; (-1, 0) when there is none."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (NO_TIMESTAMP, 0)

    def cut(self, relative_offset: int) -> None:
        """Forget entries at or after a relative offset."""
        keep = bisect_right(self.offsets, relative_offset - 1)
        del self.offsets[keep:]
        del self.timestamps[keep:]

    def encode(self) -> bytes:
        """Kafka's bytes."""
        pairs: list[int] = [0] * (2 * len(self.offsets))
        pairs[0::2] = self.timestamps
        pairs[1::2] = self.offsets
        return struct.pack(">" + "qi" * len(self.offsets), *pairs)

    @staticmethod
    def decode_entry(encoded: Buffer) -> tuple[int, int]:
        """The timestamp and relative offset of one entry."""
        timestamp, relative_offset = _TIME_ENTRY.unpack(encoded)
        return timestamp, relative_offset

    @classmethod
    def decode(cls, encoded: bytes) -> TimeIndex:
        """Read Kafka's bytes; zeros at the end (a preallocated file) are dropped, if they are whole
        entries: a torn file may end within the zeros that a timestamp begins with."""
        if len(encoded) % TIME_ENTRY_BYTES:
            raise InvalidIndex("the last entry is incomplete")
        used = -(-len(encoded.rstrip(b"\0")) // TIME_ENTRY_BYTES) * TIME_ENTRY_BYTES
        fields = struct.unpack(">" + "qi" * (used // TIME_ENTRY_BYTES), encoded[:used])
        index = cls()
        index.timestamps, index.offsets = array("q", fields[0::2]), array("i", fields[1::2])
        if not _increases(index.timestamps) or list(index.offsets) != sorted(index.offsets):
            raise InvalidIndex("entries are out of order")
        return index


class AbortedRange(NamedTuple):
    """A transaction that was aborted: `last_offset` is its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(ranges: list[AbortedRange]) -> bytes:
    """The bytes of a `.txnindex`."""
    return b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in ranges)


def decode_aborted(encoded: bytes) -> list[AbortedRange]:
    """Read a `.txnindex`."""
    if len(encoded) % ABORTED_ENTRY.size:
        raise InvalidIndex("the last entry is incomplete")
    ranges = []
    for version, *fields in ABORTED_ENTRY.iter_unpack(encoded):
        if version != 0:
            raise InvalidIndex(f"version {version} is unknown")
        ranges.append(AbortedRange(*fields))
    return ranges


def _increases(values: array[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))
