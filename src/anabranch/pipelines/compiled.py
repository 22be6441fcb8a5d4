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

DECLINED = -1
FARTHEST_TIME = 1 << 61
FARTHEST_MS = ((1 << 63) - 1) // 1000
"""Times beyond do not fit into a column of microseconds: they become the last one that does."""
LONGEST_VARINT_SHIFT = 63


@njit(cache=True, nogil=True, inline="always")
def _varint(plain: Any, position: int, end: int) -> Any:
    """(number, the position behind it); the position is -1 when it is not to be decided here."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = plain[position]
        position += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == np.uint64(LONGEST_VARINT_SHIFT) and byte > 1:
                return np.int64(0), -1
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
        if shift > np.uint64(LONGEST_VARINT_SHIFT):
            return np.int64(0), -1
    return np.int64(0), -1


@njit(cache=True, nogil=True)
def _headers_end(plain: Any, position: int, end: int) -> int:
    """The position behind a record's headers, or DECLINED."""
    count, position = _varint(plain, position, end)
    if position < 0 or count < 0 or count > (end - position) // 2:
        return DECLINED
    for _ in range(count):
        size, position = _varint(plain, position, end)
        if position < 0 or size < 0 or size > end - position:
            return DECLINED
        for at in range(position, position + size):
            if plain[at] >= 0x80:
                return DECLINED
        size, position = _varint(plain, position + size, end)
        if position < 0 or size > end - position:
            return DECLINED
        if size > 0:
            position += size
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
        size, position = _varint(plain, position, end)
        if position < 0 or size <= 0 or size > end - position:
            return DECLINED
        record_end = position + size
        time_delta, position = _varint(plain, position + 1, record_end)
        if position < 0 or time_delta < -FARTHEST_TIME or time_delta > FARTHEST_TIME:
            return DECLINED
        delta, position = _varint(plain, position, record_end)
        if position < 0 or delta <= previous or delta > last_delta:
            return DECLINED
        previous = delta
        for field in range(2):
            size, position = _varint(plain, position, record_end)
            if position < 0 or size > record_end - position:
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
    key_at = ends[0, row]
    value_at = ends[1, row]
    rows = len(out_offsets)
    while first < until and row < rows:
        key_size = places[first, 1]
        value_size = places[first, 3]
        if key_at + key_size > len(keys) or value_at + value_size > len(values):
            break
        source = places[first, 0]
        for each in range(key_size):
            keys[key_at + each] = plain[source + each]
        source = places[first, 2]
        for each in range(value_size):
            values[value_at + each] = plain[source + each]
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
