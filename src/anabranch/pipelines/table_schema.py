"""The schema of a table: given, taken from the table, or derived from the first records.

Rules kept: a field that the table has is not changed; fields that are new are added; a schema that
is not given is the table's, as soon as there is a table, so that a job which goes on parses what it
parsed before. Not here: the types of fields (fields.py), and when fields are added (table_sink.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.core.sentences import number_of
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.fields import (
    MOST_DEPTH,
    MOST_FIELDS,
    Fields,
    columns_of,
    fields_of,
    merged,
    settled,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
FIT = frozenset(
    {
        BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType,
        IntegerType, LongType, ShortType, StringType, TimestampNTZType, TimestampType,
    }
)  # fmt: skip
"""Types that Spark reads from JSON, hands to Python, and a Delta table has."""
MAPPING = "delta.columnMapping.mode"
CHECK = "delta.constraints."
RULES = ("delta.generationExpression", "delta.identity.start", "delta.invariants")
"""What the metadata of a field says that only writers keep: values that they make, or check."""
SAMPLED = 10_000
"""Records that a schema is derived from, when none is given and there is no table."""
HOLDS = "Name a folder that this user may write, and that holds a Delta table or nothing."
WRITES = (
    "Check that this user may write its folder, that no other process changes the table, and that "
    "it needs no newer version of deltalake; then run the job again."
)


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
    taken = [each for each in schema.names if each.lower() in RESERVED]
    lower = [each.lower() for each in schema.names]
    twice = [each for each in schema.names if lower.count(each.lower()) > 1]
    what = "" if schema.names else "has no field"
    if taken:
        what = f"has {', '.join(taken)}, which the job writes itself"
    elif twice:
        what = f"has {', '.join(twice)}, which are one column: Delta tables ignore case"
    for each in schema.fields:
        wrong = unfit(each)
        if wrong and not what:
            what = f"has the field {each.name} as {wrong}, which is not supported"
    if what:
        raise PipelineFault(f"The schema {what}. Give another one.")
    return schema


def unfit(field: StructField, depth: int = 0) -> str:
    """What of a field no column can be; empty for one that is fit. Records may lack any field."""
    return _unfit(field.dataType, depth) if field.nullable else "NOT NULL"


def _unfit(kind: DataType, depth: int = 0) -> str:
    if isinstance(kind, ArrayType | StructType | MapType) and depth == MOST_DEPTH:
        return f"a type of more than {MOST_DEPTH} levels"
    if isinstance(kind, ArrayType):
        return _unfit(kind.elementType, depth + 1)
    if isinstance(kind, StructType):
        return next(filter(None, (unfit(each, depth + 1) for each in kind.fields)), "")
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return _unfit(kind.valueType, depth + 1)
    return "" if type(kind) in FIT else str(kind.simpleString())


def schema_of_table(table: str) -> StructType | None:
    """The fields that a table has for records; None without a table. Raises PipelineFault."""
    from deltalake import DeltaTable

    with _told(f"The table {table} cannot be opened", HOLDS):
        if not DeltaTable.is_deltatable(table):
            return None
        schema = DeltaTable(table).schema()
    known = StructType.fromJson(json.loads(schema.to_json()))
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
    """Create the table, or add the fields that it lacks. Raises PipelineFault for a table that rows
    of this schema cannot be added to, and for a folder that cannot be one."""
    from deltalake import DeltaTable
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    with _told(f"The table {table} cannot be opened or created", HOLDS):
        if not DeltaTable.is_deltatable(table):
            DeltaTable.create(table, wanted)
            return
        known = DeltaTable(table)
    _extend(known, table, wanted)


def _extend(known: DeltaTable, table: str, wanted: Any) -> None:
    from deltalake import Schema

    beyond = _beyond_this_job(known)
    if beyond:
        raise PipelineFault(f"The table {table} {beyond}: write to another table.")
    has = {each.name.lower(): each for each in known.schema().fields}
    asked = Schema.from_arrow(wanted).fields
    for each in asked:
        there = has.get(each.name.lower(), each)
        if there.name != each.name or there.type != each.type:
            raise PipelineFault(
                f"The table {table} has the field {_described(there)}, and the schema says "
                f"{_described(each)}: correct the schema, or write to another table."
            )
    missing = [each for each in asked if each.name.lower() not in has]
    if missing:
        with _told(f"The new fields were not added to the table {table}", WRITES):
            known.alter.add_columns(missing)


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """What the Delta library refuses is told as a PipelineFault."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as fault:
        raise PipelineFault(f"{what}: {plain(fault)}. {remedy}") from None


def _beyond_this_job(known: DeltaTable) -> str:
    """What of a table this job would get wrong, as files are added unseen; else empty."""
    metadata, fields = known.metadata(), known.schema().fields
    never_null = [_described(each) for each in fields if not each.nullable]
    rules = [each.name for each in fields if any(rule in each.metadata for rule in RULES)]
    settings = metadata.configuration
    checks = [each.removeprefix(CHECK) for each in settings if each.startswith(CHECK)]
    mapping = settings.get(MAPPING) or "none"
    if metadata.partition_columns:
        names = ", ".join(metadata.partition_columns)
        return f"is partitioned by {names}, and this job writes no partitions"
    if never_null:
        return f"has {', '.join(never_null)}, and a record may lack any field"
    if mapping != "none":
        return f"maps columns by {mapping} ({MAPPING}), and this job writes their plain names"
    if checks:
        return f"has the constraints {', '.join(checks)}, and this job checks none"
    return f"has rules for {', '.join(rules)}, and this job follows none" if rules else ""


def _described(field: Any) -> str:
    """A field of a Delta table, with its type as DDL has it."""
    own = StructField.fromJson(json.loads(field.to_json()))
    return f"{own.name} as {own.dataType.simpleString()}" + ("" if own.nullable else " not null")


def plain(fault: Exception) -> str:
    """What the Delta library says, in a line without colours, its trace and the period."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(fault))
    text = re.split(r"\n\s*0: ", text)[0]
    return " ".join(re.sub(r"[│╰╭├─▶↳]", " ", text).split()).rstrip(".")


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
            f"The table has {number_of(has, 'field')}, and records bring {len(more)} more, as "
            f"{more[0].name!r}; a derived table has at most {MOST_FIELDS}. If the keys of records "
            "are values and not names, give a schema without them."
        )


def sentence_of(fields: Sequence[StructField]) -> str:
    """Names and types for people."""
    return ", ".join(f"{each.name} ({each.dataType.simpleString()})" for each in fields)
