"""Record batches' records to columns, in code that numba compiles.

What: `index_records` checks the records of one batch and writes down where their keys and values
lie; `copy_rows` copies some of them into the buffers of Arrow columns. Layout and rules are those
of `core.wire.records`, which stays the judge: whatever looks odd here is declined, and decided
there. Both work on numpy arrays alone and hold no lock of Python's, so that fetching goes on
meanwhile. Compiled once a machine: the result is kept in numba's folder (cache.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.pipelines.cache import set_numba_folder

set_numba_folder()

from numba import njit  # noqa: E402  # it reads the folder's name when it is imported

from anabranch.pipelines.byte_copy import move  # noqa: E402

DECLINED = -1
FARTHEST_MS = ((1 << 63) - 1) // 1000
"""Times beyond do not fit into a column of microseconds: they become the last one that does."""


SIZE_BITS = 4
SIZE_MASK = 15
LONGEST_VARINT = 8
"""Bytes of a number that is read here: with its size it fits into 64 bits."""


@njit(cache=True, nogil=True)
def read_varint(plain: Any, position: int, end: int) -> Any:
    """The number at a position, times 16, and its size in bytes: one integer, as numba is several
    times slower with two. 0 when it is not to be decided here."""
    if position + 1 < end:  # most numbers have a byte or two
        first = np.int64(plain[position])
        if first < 0x80:
            return ((first >> 1) ^ -(first & 1)) << SIZE_BITS | 1
        second = np.int64(plain[position + 1])
        if second < 0x80:
            value = (first & 0x7F) | second << 7
            return ((value >> 1) ^ -(value & 1)) << SIZE_BITS | 2
    return _longer_varint(plain, position, end)


@njit(cache=True, nogil=True)
def _longer_varint(plain: Any, position: int, end: int) -> Any:
    value = np.int64(0)
    for index in range(min(np.int64(LONGEST_VARINT), end - position)):
        byte = np.int64(plain[position + index])
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return ((value >> 1) ^ -(value & 1)) << SIZE_BITS | (index + 1)
    return np.int64(0)


@njit(cache=True, nogil=True)
def _headers_end(plain: Any, position: int, end: int) -> Any:
    """The position behind a record's headers, or DECLINED."""
    packed = read_varint(plain, position, end)
    position += packed & SIZE_MASK
    count = packed >> SIZE_BITS
    if packed == 0 or count < 0 or count > (end - position) // 2:
        return DECLINED
    for _ in range(count):
        packed = read_varint(plain, position, end)
        position += packed & SIZE_MASK
        size = packed >> SIZE_BITS
        if packed == 0 or size < 0 or size > end - position:
            return DECLINED
        for at in range(position, position + size):
            if plain[at] >= 0x80:
                return DECLINED
        position += size
        packed = read_varint(plain, position, end)
        position += packed & SIZE_MASK
        size = packed >> SIZE_BITS
        if packed == 0 or size > end - position:
            return DECLINED
        position += max(size, 0)
    return position


@njit(cache=True, nogil=True)
def index_records(
    plain: Any, count: int, last_delta: int, base_offset: int, base_timestamp: int, fixed: bool,
    fixed_timestamp: int, places: Any, offsets: Any, times: Any,
) -> int:  # fmt: skip
    """Fill `places` (key at, key size, value at, value size, headers at, their end), `offsets` and
    `times` (ms) for all records of a batch; `fixed` says that all have `fixed_timestamp`.

    Returns `count`, or DECLINED. Sizes of -1 are nulls; headers at -1 are none.
    """
    end = len(plain)
    position = 0
    previous = -1
    for row in range(count):
        packed = read_varint(plain, position, end)
        position += packed & SIZE_MASK
        size = packed >> SIZE_BITS
        if packed == 0 or size <= 0 or size > end - position:
            return DECLINED
        record_end = position + size
        position += 1  # attributes
        packed = read_varint(plain, position, record_end)
        position += packed & SIZE_MASK
        time_delta = packed >> SIZE_BITS
        if packed == 0:
            return DECLINED
        packed = read_varint(plain, position, record_end)
        position += packed & SIZE_MASK
        delta = packed >> SIZE_BITS
        if packed == 0 or delta <= previous or delta > last_delta:
            return DECLINED
        previous = delta
        for field in range(2):
            packed = read_varint(plain, position, record_end)
            position += packed & SIZE_MASK
            size = packed >> SIZE_BITS
            if packed == 0 or size > record_end - position:
                return DECLINED
            places[row, 2 * field] = position
            places[row, 2 * field + 1] = max(size, -1)
            position += max(size, 0)
        if position >= record_end:
            return DECLINED
        if plain[position] == 0:
            places[row, 4] = -1
            position += 1
        else:
            places[row, 4] = position
            position = _headers_end(plain, position, record_end)
        places[row, 5] = position
        if position != record_end:
            return DECLINED
        offsets[row] = base_offset + delta
        times[row] = fixed_timestamp if fixed else base_timestamp + time_delta
    return count if position == end else DECLINED


@njit(cache=True, nogil=True)
def copy_rows(
    plain: Any, places: Any, offsets: Any, times: Any, first: int, until: int, row: int,
    ends: Any, valid: Any, keys: Any, values: Any, out_offsets: Any, out_times: Any,
) -> int:  # fmt: skip
    """Copy rows `first` to `until` - 1 behind the `row` rows that are there, while they fit.

    `ends[column, row]` is where the row's bytes begin, as in Arrow; `valid` is 0 for nulls. Returns
    the first row that was left.
    """
    key_at = np.int64(ends[0, row])
    value_at = np.int64(ends[1, row])
    rows = len(out_offsets)
    while first < until and row < rows:
        key_size = places[first, 1]
        value_size = places[first, 3]
        if key_at + key_size > len(keys) or value_at + value_size > len(values):
            break
        if key_size > 0:
            move(keys, key_at, plain, places[first, 0], key_size)
        if value_size > 0:
            move(values, value_at, plain, places[first, 2], value_size)
        valid[0, row] = key_size >= 0
        valid[1, row] = value_size >= 0
        key_at += max(key_size, 0)
        value_at += max(value_size, 0)
        out_offsets[row] = offsets[first]
        out_times[row] = min(max(times[first], -FARTHEST_MS), FARTHEST_MS) * 1000
        row += 1
        ends[0, row] = key_at
        ends[1, row] = value_at
        first += 1
    return first
