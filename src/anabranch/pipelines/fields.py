"""The fields of JSON records and their types, for tables whose schema is not given.

What: `fields_of` gives the fields of one record, `merged` joins what records say, `settled` makes
columns of it; until then an object is a dict of its fields and an array a list with the type of its
elements, so that records are joined in place, at a cost that does not grow with what was found
before. The rules are those of Spark's own derivation: whole numbers and fractions become double,
types that have nothing in common become string, and so does what is null everywhere within an array
or an object. Three more keep a table readable everywhere: a whole number beyond 64 bits is a
double, and what is nested too deep is kept as its text, as is an object whose keys cannot be
columns. Rule kept: a field that is null everywhere has no type yet, and no column.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

Kind: TypeAlias = "DataType | list[Kind] | dict[str, Kind]"
Fields: TypeAlias = dict[str, Kind]
NOT_IN_NAMES = " ,;{}()\n\t="
"""What Delta Lake refuses in the names of columns."""
MOST_FIELDS = 1_000
"""Columns of a derived table, and keys of an object that becomes one: beyond, the keys are not
names but values, and each record would bring more of them."""
MOST_DEPTH = 20
"""Objects and arrays within each other that become columns: the Delta library writes a table of 42,
and nobody can open it again."""
MOST_BITS = 63
MOST_DIGITS = 20
"""The longest number of 64 bits, with its sign."""


def fields_of(text: str, known: Collection[str] = ()) -> Fields:
    """The fields of a record that are not null, beyond those that are known; none for what is no
    JSON object."""
    try:
        record = json.loads(text, parse_int=_whole)
        if isinstance(record, dict):
            return {
                name: _type_of(value)
                for name, value in record.items()
                if value is not None and name not in known
            }
    except (ValueError, RecursionError):  # Spark says why it is a dead letter
        pass
    return {}


def merged(one: Fields, other: Fields) -> Fields:
    """The fields of both, with types that hold the values of both; they are put into `one`, and
    `other` is used up."""
    for name, kind in other.items():
        one[name] = _common(one[name], kind) if name in one else kind
    return one


def settled(fields: Fields) -> list[StructField]:
    """The columns for fields, by name; of names that differ only in case, the first."""
    columns = []
    for name in columns_of(sorted(fields)):
        kind = _settled(fields[name])
        if kind is not None:
            columns.append(StructField(name, kind))
    return columns


def columns_of(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names that can be columns beside those that are taken; Delta Lake ignores case."""
    seen = {name.lower() for name in taken}
    fit = []
    for name in names:
        if _is_name(name) and name.lower() not in seen:
            seen.add(name.lower())
            fit.append(name)
    return fit


def _is_name(name: str) -> bool:
    """Whether a column can be called so; JSON has names that no text can be (half a surrogate)."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return bool(name) and not set(name) & set(NOT_IN_NAMES)


def _whole(digits: str) -> int | float:
    """A whole number; Python refuses to read thousands of digits as one."""
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def _type_of(value: Any, depth: int = 0) -> Kind:
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -(1 << MOST_BITS) <= value < 1 << MOST_BITS else DoubleType()
    if isinstance(value, float):
        return DoubleType()
    if isinstance(value, str) or depth == MOST_DEPTH:
        return StringType()
    if isinstance(value, list):
        element: Kind = NullType()
        for each in value:
            element = _common(element, _type_of(each, depth + 1))
        return [element]
    return _object({name: _type_of(each, depth + 1) for name, each in value.items()})


def _object(fields: Fields) -> Kind:
    """An object, or its text when it has more keys than can be columns."""
    return fields if len(fields) <= MOST_FIELDS else StringType()


def _common(one: Kind, other: Kind) -> Kind:
    """The type that holds the values of both."""
    if isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, list) and isinstance(other, list):
        return [_common(one[0], other[0])]
    if isinstance(one, dict) and isinstance(other, dict):
        return _object(merged(one, other))
    if one == other:
        return one
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    return StringType()


def _settled(kind: Kind) -> DataType | None:
    """A type that a table can have; None while there is none, as for an object without keys. An
    object whose keys cannot be columns is its text."""
    if isinstance(kind, list):
        return ArrayType(_settled(kind[0]) or StringType())
    if isinstance(kind, dict):
        names = sorted(kind)
        if columns_of(names) != names:
            return StringType()
        fields = [StructField(name, _settled(kind[name]) or StringType()) for name in names]
        return StructType(fields) if fields else None
    return None if isinstance(kind, NullType) else kind
