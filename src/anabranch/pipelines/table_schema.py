"""The schema of a table: given, taken from the table, or derived from the first records.

Rules kept: a field that the table has is not changed; fields that are new are added; a schema that
is not given is the table's, as soon as there is a table, so that a job which goes on parses what it
parsed before. Not here: the types of fields (fields.py), and when fields are added (table_sink.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.fields import MOST_FIELDS, Fields, columns_of, fields_of, merged, settled

PLACE = StructType(
    [
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
        StructField("_timestamp", TimestampType()),
    ]
)
"""Where a row comes from: columns of both tables, behind the others."""
CORRUPT = "_corrupt"
RESERVED = (*PLACE.names, CORRUPT)
"""Names that the job needs itself."""
SAMPLED = 10_000
"""Records that a schema is derived from, when none is given and there is no table."""


def given_schema(schema: StructType | str) -> StructType:
    """A schema that the user gives, as a struct or as DDL. Raises PipelineFault."""
    if isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except Exception as problem:
            raise PipelineFault(
                f"The schema {schema!r} cannot be read: write it as 'id bigint, name string'. "
                f"{str(problem).splitlines()[0]}"
            ) from None
    taken = sorted(set(RESERVED) & set(schema.names))
    if taken or not schema.names:
        what = f"has {', '.join(taken)}, which the job writes itself" if taken else "has no field"
        raise PipelineFault(f"The schema {what}: give another one.")
    return schema


def schema_of_table(table: str) -> StructType | None:
    """The fields that a table has for records; None without a table."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(table):
        return None
    known = StructType.fromJson(json.loads(DeltaTable(table).schema().to_json()))
    return StructType([each for each in known.fields if each.name not in PLACE.names])


def derived_schema(records: DataFrame, topic: str) -> StructType:
    """The schema of the first records. Raises PipelineFault for no fields, or too many."""
    texts = records.select(F.col("value").cast("string")).limit(SAMPLED).rdd
    found: Fields = texts.aggregate(
        {}, lambda fields, row: merged(fields, fields_of(row[0] or "")), merged
    )
    fit = set(columns_of(found, RESERVED))
    fields = settled({name: kind for name, kind in found.items() if name in fit})
    if not fields:
        raise PipelineFault(
            f"No schema can be derived: none of the first {SAMPLED} records of topic "
            f"{topic!r} is a JSON object with fields. Give a schema, as 'id bigint, name string'."
        )
    _check_width(0, fields)
    return StructType(fields)


def prepare(table: str, schema: StructType) -> None:
    """Create the table, or add the fields that it lacks. Raises PipelineFault for another type."""
    from deltalake import DeltaTable, Schema
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    if not DeltaTable.is_deltatable(table):
        DeltaTable.create(table, wanted)
        return
    known = DeltaTable(table)
    has = {each.name: each for each in known.schema().fields}
    asked = Schema.from_arrow(wanted).fields
    for each in asked:
        if each.name in has and has[each.name].type != each.type:
            raise PipelineFault(
                f"The table {table} has the field {each.name} as {has[each.name].type}, and the "
                f"schema says {each.type}: correct the schema, or write to another table."
            )
    missing = [each for each in asked if each.name not in has]
    if missing:
        known.alter.add_columns(missing)


def add_fields(table: str, found: Sequence[StructField]) -> None:
    """Add fields that a micro-batch brought. Raises PipelineFault when they are too many."""
    known = schema_of_table(table) or StructType([])
    fit = set(columns_of([each.name for each in found], [*known.names, *RESERVED]))
    missing = [each for each in found if each.name in fit]
    _check_width(len(known.names), missing)
    prepare(table, StructType([*known.fields, *missing]))


def _check_width(has: int, more: Sequence[StructField]) -> None:
    if has + len(more) > MOST_FIELDS:
        raise PipelineFault(
            f"The table has {has} fields, and records bring {len(more)} more, as "
            f"{more[0].name!r}; a derived table has at most {MOST_FIELDS}. If the keys of records "
            "are values and not names, give a schema without them."
        )


def sentence_of(fields: Sequence[StructField]) -> str:
    """Names and types for people."""
    return ", ".join(f"{each.name} ({each.dataType.simpleString()})" for each in fields)
