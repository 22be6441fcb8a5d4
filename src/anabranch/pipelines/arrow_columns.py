"""Arrow arrays of strings, bytes and headers as numpy arrays over the same memory.

Why: the encoder reads a column as its bytes, the n + 1 offsets of its rows, and whether each row is
null. Nothing is copied but the offsets, which become 64 bits wide, so that one compiled function
serves every type. Rule kept: all arrays are read-only, as numba compiles another function for those
that are not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa


class Column(NamedTuple):
    """Strings or bytes of n rows: `at` has n + 1 offsets into `plain`."""

    plain: Any
    at: Any
    null: Any

    @property
    def sizes(self) -> Any:
        """Bytes of each row."""
        return np.diff(self.at)


class HeadersColumn(NamedTuple):
    """Headers of n rows: `at` has n + 1 offsets into `keys` and `values`."""

    at: Any
    keys: Column
    values: Column


def read_only(array: Any) -> Any:
    """The array, not to be written to any more."""
    array.setflags(write=False)
    return array


def column_of(array: Any) -> Column:
    """A column of strings or bytes, of either width."""
    return Column(_bytes_of(array.buffers()[2]), _offsets_of(array), _nulls_of(array))


def absent(rows: int) -> Column:
    """A column of nulls."""
    return Column(_bytes_of(None), read_only(np.zeros(rows + 1, np.int64)), _all(rows, True))


def headers_of(array: Any) -> HeadersColumn:
    """A column of lists of structs of a key and a value; a null list has no headers."""
    if array.null_count:  # a null may hide headers: as an empty list it has none
        array = array.fill_null(pa.scalar([], array.type))
    fields = array.values
    at = _offsets_of(array)
    keys, values = fields.field(0), fields.field(1)
    if fields.offset:  # `field` leaves out where the struct begins
        keys, values = (each.slice(fields.offset, len(fields)) for each in (keys, values))
    return HeadersColumn(at, column_of(keys), column_of(values))


def _bytes_of(buffer: Any) -> Any:
    plain = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    return read_only(plain)


def _offsets_of(array: Any) -> Any:
    kind = array.type
    is_wide = (
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return read_only(np.zeros(len(array) + 1, np.int64))
    offsets = np.frombuffer(buffer, np.int64 if is_wide else np.int32)
    return read_only(offsets[array.offset : array.offset + len(array) + 1].astype(np.int64))


def _nulls_of(array: Any) -> Any:
    if not array.null_count:
        return _all(len(array), False)
    return read_only(np.asarray(array.is_null().to_numpy(zero_copy_only=False)))


def _all(rows: int, value: bool) -> Any:
    return read_only(np.full(rows, value, np.bool_))
