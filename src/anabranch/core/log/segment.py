"""One segment: a run of batches in a file, and its indexes.

Files are named after the segment's first offset, 20 digits: `.log`, `.index`, `.timeindex`,
`.txnindex`, and `.snapshot` for the producer state at that offset. Indexes of segments that are no
longer written are loaded when they are needed and dropped again by an IndexCache, so that a node
with many segments does not hold them all. What cannot be loaded is rebuilt from the batches.
"""

from __future__ import annotations

from collections import OrderedDict

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import Files
from anabranch.core.log.indexes import (
    INT32_MAX,
    NO_TIMESTAMP,
    TIME_ENTRY_BYTES,
    InvalidIndex,
    OffsetIndex,
    TimeIndex,
)
from anabranch.core.log.scan import BadBatch, scan

LOG, OFFSETS, TIMES, TRANSACTIONS, SNAPSHOT, DELETED = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".deleted",
)
OFFSET_DIGITS = 20
LOOKED_FOR_A_TIME_BYTES = 64 << 10
"""Of a segment whose time index is empty: one of the batches in them tells whether it may be."""
CACHED_INDEX_BYTES = 32 << 20
"""Indexes of closed segments kept in memory, for all logs of a folder together."""


def offset_name(offset: int, suffix: str) -> str:
    """A file name after an offset, as Kafka forms it."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int:
    """The offset that a file is named after, -1 when it is not a file of ours."""
    digits = name.removesuffix(suffix)
    if name == digits or len(digits) != OFFSET_DIGITS:
        return -1
    return int(digits) if digits.isascii() and digits.isdigit() else -1


class Segment:
    """Batches from `base_offset` on. `size` is how far the file is ours."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "file",
        "first_timestamp",
        "index_saved",
        "is_dropped",
        "is_future_told",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "stem",
        "time_index",
    )

    def __init__(
        self, files: Files, folder: str, base_offset: int, now_ms: int, *, only_reads: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.stem = f"{folder}/{base_offset:020d}"
        self.file = files.open(self.stem + LOG, create=not only_reads, write=not only_reads)
        self.size = 0
        self.created_ms = now_ms
        self.first_timestamp = NO_TIMESTAMP
        self.is_dropped = False
        self.is_future_told = False
        self.reset()

    def reset(self) -> None:
        """Empty indexes, for an empty segment or before they are rebuilt."""
        self.index_saved = False
        self.bytes_since_index = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.offset_index: OffsetIndex | None = OffsetIndex()
        self.time_index: TimeIndex | None = TimeIndex()

    def note(
        self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int
    ) -> None:
        """Index a batch: the newest timestamp always, a position about every `interval` bytes.

        Raises BadBatch for an offset that no index of this segment can hold: it is rot."""
        if not 0 <= last_offset - self.base_offset <= INT32_MAX:
            raise BadBatch(position, f"offset {last_offset} is not one of this segment's")
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval:
            assert self.offset_index is not None
            assert self.time_index is not None
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.append_if_later(
                self.max_timestamp, self.max_timestamp_offset - self.base_offset
            )
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def index_full(self, limit_bytes: int) -> bool:
        """Whether another entry may not fit into index files of that size."""
        assert self.offset_index is not None
        return len(self.offset_index) >= limit_bytes // TIME_ENTRY_BYTES - 1

    def can_hold(self, offset: int) -> bool:
        """Whether an offset can be written relative to this segment's first."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def save_indexes(self, files: Files, *, sync: bool = False) -> None:
        """Write the indexes beside a segment that is closed; a sync round covers them, or `sync`
        does."""
        assert self.offset_index is not None
        assert self.time_index is not None
        self.time_index.append_if_later(
            self.max_timestamp, self.max_timestamp_offset - self.base_offset
        )
        files.write_atomic(self.stem + OFFSETS, self.offset_index.encode(), sync=sync)
        files.write_atomic(self.stem + TIMES, self.time_index.encode(), sync=sync)
        self.index_saved = True

    def load_indexes(self, files: Files, interval: int, end_offset: int) -> bool:
        """Read the indexes; True when they had to be rebuilt from the batches, which end before
        `end_offset`. Raises BadBatch."""
        try:
            self.read_indexes(files, end_offset)
        except (InvalidIndex, StorageFault):
            self.rebuild_indexes(files, interval)
            return True
        return False

    def read_indexes(self, files: Files, end_offset: int) -> None:
        """Read the indexes. Raises InvalidIndex or StorageFault, with nothing changed, where they
        have to be rebuilt."""
        offset_index = OffsetIndex.decode(files.read(self.stem + OFFSETS), self.size)
        time_index = TimeIndex.decode(files.read(self.stem + TIMES))
        if time_index.last()[1] >= end_offset - self.base_offset:
            raise InvalidIndex("an offset lies beyond the segment")
        if len(time_index) == 0 and self._begins_with_a_time():
            raise InvalidIndex("it has no entry")
        self.offset_index, self.time_index = offset_index, time_index
        timestamp, relative_offset = time_index.last()
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = self.base_offset + relative_offset
        self.index_saved = True

    def _begins_with_a_time(self) -> bool:
        """Whether one of the first batches has a timestamp. Producers may send none, and compaction
        leaves batches without a record: it is not worth reading all of those."""
        for position, header in scan(self.file, self.size, check_crc=False):
            if header.newest_timestamp > 0:  # an entry of time 0 is taken for an empty file
                return True
            if position >= LOOKED_FOR_A_TIME_BYTES:
                break
        return False

    def load_newest(self, files: Files, end_offset: int) -> None:
        """Read the largest timestamp alone, from the end of the time index. Where the file does not
        tell, it stays unknown: all of it has to be read."""
        file = files.open(self.stem + TIMES, write=False)
        try:
            size = file.size()
            if size == 0 or size % TIME_ENTRY_BYTES:
                return
            entry = file.read_blocking(size - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
            timestamp, relative_offset = TimeIndex.decode_entry(entry)
        except StorageFault:
            return
        finally:
            file.close()
        offset = self.base_offset + relative_offset
        if timestamp > 0 and self.base_offset <= offset < end_offset:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset

    def rebuild_indexes(self, files: Files, interval: int) -> None:
        """Make the indexes again from the batches and save them: no later round would. Raises
        BadBatch."""
        self.index_batches(interval)
        self.save_indexes(files, sync=True)

    def index_batches(self, interval: int) -> None:
        """Make the indexes again from the batches. Raises BadBatch."""
        self.reset()
        for position, header in scan(self.file, self.size, check_crc=False):
            self.note(
                position, header.size_bytes, header.last_offset, header.newest_timestamp, interval
            )

    def take_indexes(self, other: Segment) -> None:
        """Those that were made of the same batches elsewhere."""
        self.offset_index, self.time_index = other.offset_index, other.time_index
        self.bytes_since_index = other.bytes_since_index
        self.max_timestamp = other.max_timestamp
        self.max_timestamp_offset = other.max_timestamp_offset

    def cut_indexes(self, position: int, end_offset: int) -> None:
        """Forget what lies at or after a position; the largest timestamp must be found again."""
        assert self.offset_index is not None
        assert self.time_index is not None
        self.offset_index.cut(position)
        self.time_index.cut(end_offset - self.base_offset)
        self.max_timestamp, relative_offset = self.time_index.last()
        self.max_timestamp_offset = self.base_offset + relative_offset
        self.bytes_since_index = 0
        self.index_saved = False

    def drop_indexes(self) -> None:
        """Give memory back; the files are there."""
        self.offset_index = self.time_index = None

    @property
    def index_bytes(self) -> int:
        """About how much memory the indexes take."""
        if self.offset_index is None or self.time_index is None:
            return 0
        return 8 * len(self.offset_index) + 12 * len(self.time_index) + 400


class IndexCache:
    """Which closed segments have their indexes in memory; the longest unused go first."""

    __slots__ = ("_held", "held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = CACHED_INDEX_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: OrderedDict[Segment, int] = OrderedDict()

    def keep(self, segment: Segment) -> None:
        """Note a use; drops others when there are too many. Only for saved indexes."""
        if segment in self._held:
            self._held.move_to_end(segment)
            return
        self._held[segment] = segment.index_bytes
        self.held_bytes += segment.index_bytes
        while self.held_bytes > self.limit_bytes and len(self._held) > 1:
            oldest, size_bytes = self._held.popitem(last=False)
            self.held_bytes -= size_bytes
            oldest.drop_indexes()

    def forget(self, segment: Segment) -> None:
        """A segment is written again or gone."""
        self.held_bytes -= self._held.pop(segment, 0)
