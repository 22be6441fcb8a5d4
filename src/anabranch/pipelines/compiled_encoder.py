"""Columns to the records of batches, in code that numba compiles.

What: `write_batches` writes the records of rows, each batch behind room for its header;
`write_headers` writes the records' headers, row by row; `murmur2_of` hashes keys. The layout is
that of `core.wire.records`, the hash that of `client.partitioner`; encoder.py has the same with
those and without numba, and a test holds the two to the same bytes. All three work on numpy arrays
alone and hold no lock of Python's, so that sending goes on meanwhile. A column is its bytes, the
n + 1 offsets of its rows, and whether each row is null.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.pipelines.cache import set_numba_folder

set_numba_folder()

from numba import njit  # noqa: E402  # it reads the folder's name when it is imported

from anabranch.pipelines.byte_copy import move  # noqa: E402

SEED = np.uint32(0x9747B28C)
MULTIPLIER = np.uint32(0x5BD1E995)
HEADER_BYTES = 61
"""BATCH_OVERHEAD of core.wire.batch, as a constant that is compiled in."""


@njit(cache=True, nogil=True, inline="always")
def _size_of(number: Any) -> Any:
    """Bytes of a zigzag varint of a number that is not negative."""
    value = np.uint64(number) << np.uint64(1)
    size = 1
    while value > np.uint64(0x7F):
        value >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True, inline="always")
def _put(out: Any, position: int, number: Any) -> Any:
    """Write a zigzag varint of a number that is not negative; the position behind it."""
    value = np.uint64(number) << np.uint64(1)
    while value > np.uint64(0x7F):
        out[position] = np.uint8(value & np.uint64(0x7F)) | np.uint8(0x80)
        value >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(value)
    return position + 1


@njit(cache=True, nogil=True, inline="always")
def _copy(out: Any, position: int, plain: Any, start: int, size: int) -> Any:
    if size > 0:
        move(out, position, plain, start, size)
    return position + size


@njit(cache=True, nogil=True, inline="always")
def _put_bytes(out: Any, position: int, plain: Any, start: int, size: int, is_null: Any) -> Any:
    if is_null:
        out[position] = 1
        return position + 1
    return _copy(out, _put(out, position, size), plain, start, size)


@njit(cache=True, nogil=True)
def write_batches(
    order: Any, lanes: Any,
    key: Any, key_at: Any, key_null: Any,
    value: Any, value_at: Any, value_null: Any,
    headers: Any, headers_at: Any,
    limit: int, longest: int, out: Any, batches: Any,
) -> Any:  # fmt: skip
    """Write the rows of `order` into `out`; (number of batches, bytes written).

    `lanes` says for each row where it goes; rows of a lane lie together in `order`. A batch ends
    before the row that would make it longer than `limit` bytes. `batches` has a row for each batch:
    start, end, count, lane. A row that alone makes a batch longer than `longest` ends the work: the
    answer is then (-1 - its index, the batch's bytes).
    """
    position, count, made, begin, lane = 0, 0, 0, 0, -1
    for row in order:
        key_size = key_at[row + 1] - key_at[row]
        value_size = value_at[row + 1] - value_at[row]
        headers_size = headers_at[row + 1] - headers_at[row]
        fixed = 2 + headers_size  # attributes, timestamp delta
        fixed += 1 if key_null[row] else _size_of(key_size) + key_size
        fixed += 1 if value_null[row] else _size_of(value_size) + value_size
        body = fixed + _size_of(count)
        total = _size_of(body) + body
        if count == 0 or lanes[row] != lane or position - begin + total > limit:
            if count:
                batches[made, 1] = position
                batches[made, 2] = count
                made += 1
            begin, count, lane = position, 0, lanes[row]
            batches[made, 0] = begin
            batches[made, 3] = lane
            position += HEADER_BYTES
            body = fixed + 1
            total = _size_of(body) + body
            if HEADER_BYTES + total > longest:
                return -1 - row, HEADER_BYTES + total
        position = _put(out, position, body)
        out[position] = 0
        out[position + 1] = 0
        position = _put(out, position + 2, count)
        position = _put_bytes(out, position, key, key_at[row], key_size, key_null[row])
        position = _put_bytes(out, position, value, value_at[row], value_size, value_null[row])
        position = _copy(out, position, headers, headers_at[row], headers_size)
        count += 1
    if count:
        batches[made, 1] = position
        batches[made, 2] = count
        made += 1
    return made, position


@njit(cache=True, nogil=True)
def write_headers(
    rows_at: Any, key: Any, key_at: Any, value: Any, value_at: Any, value_null: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    """Write each row's headers, with their count, into `out`, and where they end into `out_at`.

    `rows_at` says which headers are a row's, `key` and `value` are columns of all headers.
    """
    position = 0
    out_at[0] = 0
    for row in range(len(rows_at) - 1):
        position = _put(out, position, rows_at[row + 1] - rows_at[row])
        for each in range(rows_at[row], rows_at[row + 1]):
            key_size = key_at[each + 1] - key_at[each]
            value_size = value_at[each + 1] - value_at[each]
            position = _put_bytes(out, position, key, key_at[each], key_size, False)
            position = _put_bytes(
                out, position, value, value_at[each], value_size, value_null[each]
            )
        out_at[row + 1] = position


@njit(cache=True, nogil=True)
def murmur2_of(key: Any, key_at: Any, hashes: Any) -> None:
    """The hash of each key, as `client.partitioner.murmur2` has it, with its sign bit cleared."""
    for row in range(len(key_at) - 1):
        start, size = key_at[row], key_at[row + 1] - key_at[row]
        result = SEED ^ np.uint32(size)
        whole = size - size % 4
        for position in range(start, start + whole, 4):
            word = (
                np.uint32(key[position])
                | np.uint32(key[position + 1]) << np.uint32(8)
                | np.uint32(key[position + 2]) << np.uint32(16)
                | np.uint32(key[position + 3]) << np.uint32(24)
            )
            word = np.uint32(word * MULTIPLIER)
            word = np.uint32((word ^ (word >> np.uint32(24))) * MULTIPLIER)
            result = np.uint32(result * MULTIPLIER) ^ word
        if size > whole:
            for index in range(size - whole):
                result ^= np.uint32(key[start + whole + index]) << np.uint32(8 * index)
            result = np.uint32(result * MULTIPLIER)
        result = np.uint32((result ^ (result >> np.uint32(13))) * MULTIPLIER)
        hashes[row] = np.int64((result ^ (result >> np.uint32(15))) & np.uint32(0x7FFFFFFF))
