"""Rows of many record batches, gathered into Arrow batches of a bounded size.

Two assemblers give the same rows: `CompiledAssembler` copies between buffers in compiled code,
`PlainAssembler` needs no numba. Rule kept: an Arrow batch has at most `ROWS` rows and `BYTES` bytes
of keys and of values, or a single row that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BATCH_OVERHEAD, BatchHeader
from anabranch.core.wire.compression import Codec, decompress
from anabranch.core.wire.records import (
    DEFAULT_LIMIT_BYTES,
    FARTHEST_TIME,
    SMALLEST_RECORD_BYTES,
    Record,
    decode_records,
)

ROWS = 64 << 10
BYTES = 2 << 20
"""Of one column: large enough that what Spark does for each Arrow batch does not count."""
FARTHEST_MS = ((1 << 63) - 1) // 1000
HEADERS = 7
"""The index of the column that `includeHeaders` adds."""


class Window(NamedTuple):
    """The offsets that are wanted: from `start`, below `until`."""

    start: int
    until: int


class Assembler(Protocol):
    """Takes batches in order and gives Arrow batches when they are full."""

    def add(self, header: BatchHeader, batch: memoryview, window: Window) -> Iterator[Any]:
        """Take the records of one batch that lie in the window. Raises ProtocolError before any
        record of the batch has been taken."""

    def rest(self) -> Iterator[Any]:
        """What has been taken and not yet given."""


def assembler(
    schema: Any, topic: str, partition: int, *, compiled: bool | None = None
) -> Assembler:
    """The assembler for the rows of one partition: the compiled one where numba is installed."""
    if compiled is None:
        compiled = numba_is_here()
    return (CompiledAssembler if compiled else PlainAssembler)(schema, topic, partition)


def numba_is_here() -> bool:
    """Whether records can be decoded by compiled code."""
    try:
        import anabranch.pipelines.compiled  # noqa: F401
    except ImportError:
        return False
    return True


class PlainAssembler:
    """Records decoded one by one in Python."""

    def __init__(self, schema: Any, topic: str, partition: int) -> None:
        self._schema = schema
        self._topic = topic
        self._partition = partition
        self._rows: list[Record] = []
        self._types: list[int] = []
        self._bytes = 0

    def add(self, header: BatchHeader, batch: memoryview, window: Window) -> Iterator[Any]:
        """Take the records of a batch."""
        records = decode_records(batch)
        for each in records:
            if not window.start <= each.offset < window.until:
                continue
            size = len(each.key or b"") + len(each.value or b"")
            if self._rows and (len(self._rows) == ROWS or self._bytes + size > BYTES):
                yield from self.rest()
            self._rows.append(each)
            self._types.append(int(header.log_append_time))
            self._bytes += size

    def rest(self) -> Iterator[Any]:
        """What has been taken."""
        rows, self._rows = self._rows, []
        types, self._types = self._types, []
        self._bytes = 0
        if rows:
            yield pa.RecordBatch.from_arrays(self._columns(rows, types), schema=self._schema)

    def _columns(self, rows: list[Record], types: list[int]) -> list[Any]:
        times = [min(max(each.timestamp, -FARTHEST_MS), FARTHEST_MS) * 1000 for each in rows]
        columns = [
            pa.array([each.key for each in rows], pa.binary()),
            pa.array([each.value for each in rows], pa.binary()),
            pa.array([self._topic] * len(rows), pa.string()),
            pa.array([self._partition] * len(rows), pa.int32()),
            pa.array([each.offset for each in rows], pa.int64()),
            pa.array(times, self._schema.field("timestamp").type),
            pa.array(types, pa.int32()),
        ]
        if len(self._schema) > HEADERS:
            columns.append(headers_column(self._schema, [each.headers for each in rows]))
        return columns


def headers_column(schema: Any, headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> Any:
    """The column of headers; null for records without any."""
    rows = [[{"key": key, "value": value} for key, value in each] or None for each in headers]
    return pa.array(rows, schema.field(HEADERS).type)


class CompiledAssembler:
    """Records decoded by `compiled`, straight into the buffers of Arrow columns."""

    def __init__(self, schema: Any, topic: str, partition: int) -> None:
        from anabranch.pipelines import compiled

        self._code = compiled
        self._schema = schema
        self._plain = PlainAssembler(schema, topic, partition)
        self._topics = _repeated(topic)
        self._partitions = pa.array(np.full(ROWS, partition, np.int32))
        self._room_for(0)
        self._begin(BYTES)

    def add(self, header: BatchHeader, batch: memoryview, window: Window) -> Iterator[Any]:
        """Take the records of a batch."""
        plain = plain_records(header, batch)
        count = self._index(header, plain)
        if count < 0:
            yield from self._decided_by_core(header, batch, window)
            return
        first, until = np.searchsorted(self._offsets[:count], window)
        while first < until:
            taken = self._copy(plain, first, until)
            self._note(header, plain, int(first), int(taken))
            first = taken
            if first < until:
                if not self._row:
                    self._begin(int(self._places[first, [1, 3]].max()))
                    continue
                yield from self.rest()

    def rest(self) -> Iterator[Any]:
        """What has been taken."""
        if self._row:
            batch = self._batch()
            self._begin(BYTES)
            yield batch

    def _decided_by_core(
        self, header: BatchHeader, batch: memoryview, window: Window
    ) -> Iterator[Any]:
        """Rows of a batch that is odd, or none at all: ProtocolError says so."""
        plain = self._plain.add(header, batch, window)
        first = next(plain, None)  # decodes, and raises before anything is given
        yield from self.rest()
        if first is not None:
            yield first
        yield from plain
        yield from self._plain.rest()

    def _index(self, header: BatchHeader, plain: Any) -> int:
        count = header.record_count
        if not 0 <= count <= len(plain) // SMALLEST_RECORD_BYTES:
            return -1
        if abs(header.base_timestamp) > FARTHEST_TIME:
            return -1
        if count > len(self._offsets):
            self._room_for(count)
        return int(
            self._code.index_records(
                plain,
                count,
                header.last_offset_delta,
                header.base_offset,
                header.base_timestamp,
                header.log_append_time,
                header.max_timestamp,
                self._places,
                self._offsets,
                self._times,
            )
        )

    def _room_for(self, count: int) -> None:
        """Arrays for the index of a batch of so many records."""
        self._places = np.empty((count, 6), np.int64)
        self._offsets = np.empty(count, np.int64)
        self._times = np.empty(count, np.int64)

    def _begin(self, size_bytes: int) -> None:
        """Buffers for the next Arrow batch: the given one may be in use still."""
        self._row = 0
        self._ends = np.zeros((2, ROWS + 1), np.int32)
        self._valid = np.empty((2, ROWS), np.uint8)
        self._keys = np.empty(max(size_bytes, 1), np.uint8)
        self._values = np.empty(max(size_bytes, 1), np.uint8)
        self._out_offsets = np.empty(ROWS, np.int64)
        self._out_times = np.empty(ROWS, np.int64)
        self._types: list[tuple[int, int]] = []
        self._headers: dict[int, Any] = {}

    def _copy(self, plain: Any, first: int, until: int) -> int:
        return int(
            self._code.copy_rows(
                plain,
                self._places,
                self._offsets,
                self._times,
                first,
                until,
                self._row,
                self._ends,
                self._valid,
                self._keys,
                self._values,
                self._out_offsets,
                self._out_times,
            )
        )

    def _note(self, header: BatchHeader, plain: Any, first: int, taken: int) -> None:
        """What is not copied row by row: the kind of timestamp, and headers where they are asked
        for."""
        if len(self._schema) > HEADERS:
            for at in np.flatnonzero(self._places[first:taken, 4] >= 0):
                begin, end = self._places[first + at, 4:6]
                self._headers[self._row + int(at)] = _headers_of(plain[begin:end].tobytes())
        self._row += taken - first
        kind = int(header.log_append_time)
        if self._types and self._types[-1][1] == kind:
            self._types.pop()
        self._types.append((self._row, kind))

    def _batch(self) -> Any:
        rows = self._row
        columns = [
            _binary(rows, self._ends[each], self._valid[each, :rows], content)
            for each, content in enumerate((self._keys, self._values))
        ]
        kinds = np.empty(rows, np.int32)
        start = 0
        for end, kind in self._types:
            kinds[start:end] = kind
            start = end
        times = pa.array(self._out_times[:rows]).view(self._schema.field("timestamp").type)
        columns += [
            self._topics.slice(0, rows), self._partitions.slice(0, rows),
            pa.array(self._out_offsets[:rows]), times, pa.array(kinds),
        ]  # fmt: skip
        if len(self._schema) > HEADERS:
            found = [self._headers.get(each, ()) for each in range(rows)]
            columns.append(headers_column(self._schema, found))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def plain_records(header: BatchHeader, batch: memoryview) -> Any:
    """The decompressed records of a batch as bytes of numpy that cannot be written."""
    if header.codec > Codec.ZSTD:
        raise ProtocolError(
            "RecordBatch", 2, "records", BATCH_OVERHEAD, f"codec {header.codec} is unknown"
        )
    packed = batch[BATCH_OVERHEAD : header.size_bytes]
    plain: Buffer = decompress(Codec(header.codec), packed, limit_bytes=DEFAULT_LIMIT_BYTES)
    found = np.frombuffer(plain, np.uint8)
    found.flags.writeable = False  # one type for compiled code, whatever holds the bytes
    return found


def _repeated(text: str) -> Any:
    """An Arrow column of one text in every row."""
    content = text.encode()
    ends = np.arange(0, (ROWS + 1) * len(content), len(content), np.int32)
    return pa.StringArray.from_buffers(ROWS, pa.py_buffer(ends), pa.py_buffer(content * ROWS))


def _binary(rows: int, ends: Any, valid: Any, content: Any) -> Any:
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _headers_of(plain: bytes) -> list[tuple[str, bytes | None]]:
    """The headers of one record, which `index_records` has found in order."""

    def varint(position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = plain[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7

    count, position = varint(0)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = varint(position)
        key = plain[position : position + size].decode("ascii")
        size, position = varint(position + size)
        headers.append((key, plain[position : position + size] if size >= 0 else None))
        position += max(size, 0)
    return headers
