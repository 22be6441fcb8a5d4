"""Rows to record batches: which records lie together, their bytes, their headers' and batches'.

Two encoders give the same bytes: the compiled one works on columns, `PlainEncoder` needs no numba.
Rules kept: rows of a lane keep their order; a batch has at most `limit_bytes` bytes before it is
compressed, or a single record; all records of a call have the time that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from anabranch.client.partitioner import murmur2
from anabranch.core.wire.batch import BATCH_OVERHEAD, HEADER, MAGIC, PREFIX
from anabranch.core.wire.compression import Codec, compress
from anabranch.core.wire.records import Headers, Record, encode_record
from anabranch.pipelines.arrow_columns import Column, HeadersColumn, read_only

ROOM_FOR_A_RECORD = 96
"""Bytes of a record beside key, value and headers, and of a batch's header, at most."""
ROOM_FOR_A_HEADER = 10
SIGN_CLEARED = 0x7FFFFFFF


class Rows(NamedTuple):
    """What is to be written, column by column."""

    key: Column
    value: Column
    headers: HeadersColumn | None


class Plain(NamedTuple):
    """Records that lie together in a buffer behind room for a batch's header."""

    batch: memoryview
    records: int
    lane: int


class RowTooLarge(Exception):
    """A row makes a batch of `size_bytes`, more than may be; `row` is its index."""

    def __init__(self, row: int, size_bytes: int) -> None:
        super().__init__(f"row {row} makes a batch of {size_bytes} bytes")
        self.row = row
        self.size_bytes = size_bytes


class Encoder(Protocol):
    """Makes hashes of keys, and records of rows."""

    def hashes(self, key: Column) -> Any:
        """murmur2 of each key with its sign bit cleared."""
        ...

    def encode(
        self, rows: Rows, order: Any, lanes: Any, *, limit_bytes: int, longest_bytes: int
    ) -> list[Plain]:
        """The rows of `order`, in which those of a lane lie together. Raises RowTooLarge."""
        ...


def encoder(*, compiled: bool | None = None) -> Encoder:
    """The compiled encoder where numba can be imported, else the plain one."""
    if compiled is None:
        compiled = _numba_is_here()
    return CompiledEncoder() if compiled else PlainEncoder()


def _numba_is_here() -> bool:
    try:
        import anabranch.pipelines.compiled_encoder  # noqa: F401
    except ImportError:
        return False
    return True


class CompiledEncoder:
    """Columns to bytes in compiled code."""

    def hashes(self, key: Column) -> Any:
        from anabranch.pipelines.compiled_encoder import murmur2_of

        hashes: Any = np.empty(len(key.null), np.int64)
        murmur2_of(key.plain, key.at, hashes)
        return hashes

    def encode(
        self, rows: Rows, order: Any, lanes: Any, *, limit_bytes: int, longest_bytes: int
    ) -> list[Plain]:
        from anabranch.pipelines.compiled_encoder import write_batches

        headers, headers_at = self._headers(rows.headers, len(lanes))
        room = len(order) * ROOM_FOR_A_RECORD + int(
            rows.key.sizes.sum() + rows.value.sizes.sum() + headers_at[-1]
        )
        out: Any = np.empty(room, np.uint8)
        batches: Any = np.empty((len(order), 4), np.int64)
        made, written = write_batches(
            order, lanes, *rows.key, *rows.value, headers, headers_at,
            limit_bytes, longest_bytes, out, batches,
        )  # fmt: skip
        if made < 0:
            raise RowTooLarge(-1 - made, written)
        view = memoryview(out)
        return [
            Plain(view[start:end], records, lane)
            for start, end, records, lane in batches[:made].tolist()
        ]

    def _headers(self, headers: HeadersColumn | None, rows: int) -> tuple[Any, Any]:
        """The bytes of every row's headers, and n + 1 offsets."""
        if headers is None:  # each row has the count 0
            return read_only(np.zeros(rows, np.uint8)), read_only(np.arange(rows + 1))
        from anabranch.pipelines.compiled_encoder import write_headers

        keys, values = headers.keys, headers.values
        first, last = headers.at[0], headers.at[-1]
        room = rows * ROOM_FOR_A_HEADER + (last - first) * 2 * ROOM_FOR_A_HEADER
        room += keys.at[last] - keys.at[first] + values.at[last] - values.at[first]
        out: Any = np.empty(room, np.uint8)
        at: Any = np.empty(rows + 1, np.int64)
        write_headers(headers.at, keys.plain, keys.at, *values, out, at)
        return read_only(out), read_only(at)


class PlainEncoder:
    """Row by row, with what the rest of the project encodes records and hashes keys with."""

    def hashes(self, key: Column) -> Any:
        plain, at = key.plain.tobytes(), key.at.tolist()
        return np.array([murmur2(plain[a:b]) & SIGN_CLEARED for a, b in pairwise(at)], np.int64)

    def encode(
        self, rows: Rows, order: Any, lanes: Any, *, limit_bytes: int, longest_bytes: int
    ) -> list[Plain]:
        batches: list[Plain] = []
        out, count, lane = bytearray(), 0, -1
        keys, values, headers = _values(rows.key), _values(rows.value), _headers(rows.headers)
        for row in order.tolist():
            fields = keys[row], values[row], headers[row] if headers else ()
            encoded = encode_record(Record(count, 0, *fields), 0, 0)
            if not count or lanes[row] != lane or len(out) + len(encoded) > limit_bytes:
                if count:
                    batches.append(Plain(memoryview(out), count, lane))
                out, count, lane = bytearray(BATCH_OVERHEAD), 0, int(lanes[row])
                encoded = encode_record(Record(0, 0, *fields), 0, 0)
                if BATCH_OVERHEAD + len(encoded) > longest_bytes:
                    raise RowTooLarge(row, BATCH_OVERHEAD + len(encoded))
            out += encoded
            count += 1
        if count:
            batches.append(Plain(memoryview(out), count, lane))
        return batches


def _values(column: Column) -> list[bytes | None]:
    plain, at = column.plain, column.at.tolist()
    return [
        None if is_null else plain[a:b].tobytes()
        for a, b, is_null in zip(at, at[1:], column.null.tolist())
    ]


def _headers(headers: HeadersColumn | None) -> list[Headers] | None:
    if headers is None:
        return None
    keys, values, at = _values(headers.keys), _values(headers.values), headers.at.tolist()
    return [
        tuple(((keys[each] or b"").decode(), values[each]) for each in range(a, b))
        for a, b in pairwise(at)
    ]


def finish(plain: Plain, codec: Codec, level: int | None, timestamp_ms: int) -> memoryview:
    """A whole batch but for producer and checksum, in the buffer of its records if it can be."""
    batch = plain.batch
    if codec is not Codec.NONE:
        packed = compress(codec, batch[BATCH_OVERHEAD:], level)
        batch = memoryview(bytearray(BATCH_OVERHEAD) + packed)
    HEADER.pack_into(
        batch, 0, 0, len(batch) - PREFIX, -1, MAGIC, 0, int(codec), plain.records - 1,
        timestamp_ms, timestamp_ms, -1, -1, -1, plain.records,
    )  # fmt: skip
    return batch


def finished(
    batches: list[Plain], codec: Codec, level: int | None, timestamp_ms: int
) -> Iterator[tuple[int, memoryview]]:
    """(lane, whole batch) of each."""
    for each in batches:
        yield each.lane, finish(each, codec, level, timestamp_ms)
