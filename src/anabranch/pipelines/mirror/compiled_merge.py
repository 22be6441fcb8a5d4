"""Records of several batches as the records of one, in code that numba compiles.

What: `append_records` copies the records of one batch behind those that are there, numbered on, and
counted from another base timestamp. Keys, values and headers are copied unread. Layout and rules
are those of `core.wire.records`: whatever looks odd is declined, and `core.mirror.repack` decides.
Works on numpy arrays alone and holds no lock of Python's, so that fetches go on meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.pipelines.cache import set_numba_folder

set_numba_folder()

from numba import njit  # noqa: E402  # it reads the folder's name when it is imported

from anabranch.pipelines.byte_copy import move  # noqa: E402
from anabranch.pipelines.compiled import DECLINED, SIZE_BITS, SIZE_MASK, read_varint  # noqa: E402

MOST_GROWTH = 16
"""Bytes by which a record may grow: its deltas and its length get longer varints."""


@njit(cache=True, nogil=True, inline="always")
def _zigzag(number: Any) -> Any:
    return np.uint64((number << np.int64(1)) ^ (number >> np.int64(63)))


@njit(cache=True, nogil=True, inline="always")
def _size_of(value: Any) -> Any:
    size = 1
    while value > np.uint64(0x7F):
        value >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True, inline="always")
def _put(out: Any, position: int, value: Any) -> Any:
    while value > np.uint64(0x7F):
        out[position] = np.uint8(value & np.uint64(0x7F)) | np.uint8(0x80)
        value >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(value)
    return position + 1


@njit(cache=True, nogil=True)
def append_records(
    plain: Any, count: int, last_delta: int, shift: int, fixed: bool, first: int,
    out: Any, position: int, deltas: Any,
) -> Any:  # fmt: skip
    """Copy `count` records into `out` from `position` on, numbered from `first` on.

    `shift` is added to each timestamp delta, or is the delta of all where times are `fixed`.
    `deltas` gets each record's offset delta in its old batch. Returns the position behind the last
    record, or DECLINED; `out` must have room for `plain` and MOST_GROWTH bytes a record.
    """
    end = len(plain)
    at = 0
    previous = -1
    for row in range(count):
        packed = read_varint(plain, at, end)
        at += packed & SIZE_MASK
        size = packed >> SIZE_BITS
        if packed == 0 or size <= 0 or size > end - at:
            return DECLINED
        record_end = at + size
        attributes = plain[at]
        packed = read_varint(plain, at + 1, record_end)
        if packed == 0:
            return DECLINED
        at += 1 + (packed & SIZE_MASK)
        time_delta = np.int64(shift) if fixed else (packed >> SIZE_BITS) + np.int64(shift)
        packed = read_varint(plain, at, record_end)
        if packed == 0:
            return DECLINED
        at += packed & SIZE_MASK
        delta = packed >> SIZE_BITS
        if delta <= previous or delta > last_delta:
            return DECLINED
        previous = delta
        deltas[row] = delta
        time_value = _zigzag(time_delta)
        place = _zigzag(np.int64(first + row))
        rest = record_end - at
        body = 1 + _size_of(time_value) + _size_of(place) + rest
        position = _put(out, position, _zigzag(np.int64(body)))
        out[position] = attributes
        position = _put(out, position + 1, time_value)
        position = _put(out, position, place)
        move(out, position, plain, at, rest)
        position += rest
        at = record_end
    return position if at == end else DECLINED
