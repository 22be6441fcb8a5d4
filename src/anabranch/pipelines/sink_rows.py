"""The columns that the sink writes, by the names and types of Spark's own Kafka sink.

    topic string | key string, binary | value string, binary | partition int
    headers array<struct<key: string, value: binary>>

`value` is required, and `topic` unless the option names one; the option goes over the column. Other
columns are ignored, as Spark's sink ignores them. Rule kept: every column of a wrong type is named,
with the type that it has and those that it may have, before any row is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from anabranch.pipelines.columns import HEADERS
from anabranch.pipelines.faults import PipelineFault

ALLOWED: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
}
"""Column -> the types that it may have."""


class SinkColumns(NamedTuple):
    """Where the sink's columns are among those of the rows; None for one that is not there."""

    topic: int | None
    key: int | None
    value: int
    partition: int | None
    headers: int | None


def columns_of(schema: StructType, topic: str | None) -> SinkColumns:
    """The sink's columns in rows of `schema`, `topic` being the option. Raises PipelineFault."""
    found = {name: _index(schema, name) for name in ALLOWED}
    if topic is not None:
        found["topic"] = None
    problems = [
        _wrong_type(schema, name, index) for name, index in found.items()
        if index is not None and not _is_allowed(schema.fields[index].dataType, ALLOWED[name])
    ]  # fmt: skip
    value = found.pop("value")
    if value is None:
        problems.append(
            f"There is no column `value`, which is required{_other_case(schema, 'value')}. Rename "
            "a column: withColumnRenamed(…, 'value'), or alias it in select."
        )
    if topic is None and found["topic"] is None:
        problems.append(
            f"There is no column `topic`{_other_case(schema, 'topic')}: use option('topic', …), or "
            "give every row one."
        )
    if problems or value is None:
        raise PipelineFault("\n".join(problems))
    return SinkColumns(value=value, **found)


def _index(schema: StructType, name: str) -> int | None:
    return next((at for at, field in enumerate(schema.fields) if field.name == name), None)


def _other_case(schema: StructType, name: str) -> str:
    near = [each for each in schema.names if each.lower() == name]
    return f" (there is `{near[0]}`, and names are compared with their case)" if near else ""


def _is_allowed(found: DataType, allowed: Iterable[DataType]) -> bool:
    names = {_plain_name(each) for each in allowed}
    return (isinstance(found, StringType) and "string" in names) or _plain_name(found) in names


def _plain_name(kind: DataType) -> str:
    """The type's name, in which neither nulls nor nullability appear."""
    return str(kind.simpleString())


def _wrong_type(schema: StructType, name: str, index: int) -> str:
    found = schema.fields[index].dataType.simpleString()
    allowed = " or ".join(each.simpleString() for each in ALLOWED[name])
    cast = ALLOWED[name][0].simpleString()
    return f"Column `{name}` is of type {found}; it must be {allowed}. Cast it to {cast}."
