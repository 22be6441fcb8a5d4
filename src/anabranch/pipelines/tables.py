"""The job `tables`: the JSON records of a topic as rows of a Delta table, each exactly once.

What: a stream reads the topic, Spark parses the values by the schema, rows that fit go to the table
and the others, as they came and with the reason, to a table of dead letters (table_sink.py). The
checkpoint says how far the job is; it holds the name under which the tables know the job, so that a
micro-batch that is run again after a crash is not added twice. Rules kept: a checkpoint belongs to
one table; a given schema stays as it is; a schema that is not given grows with the records
(table_schema.py, table_query.py).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations
from operator import or_
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.fields import NOT_IN_NAMES
from anabranch.pipelines.table_query import TableQuery
from anabranch.pipelines.table_schema import (
    CORRUPT,
    PLACE,
    RESERVED,
    derived_schema,
    given_schema,
    prepare,
    schema_of_table,
)
from anabranch.pipelines.table_sink import DEAD, FITS, FORMAT, MORE, REASON, TableSource

DEAD_LETTER = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("reason", StringType()),
        *PLACE.fields,
    ]
)
IDENTITY = "anabranch-table.json"
"""A file in the checkpoint: the job's name in the tables, and the table it belongs to."""
GOES_ON = "the value goes on behind its first JSON document"
ISOLATION = "kafka.isolation.level"
COMMITTED = {ISOLATION: "read_committed"}


@dataclass(frozen=True, kw_only=True)
class TableJob:
    """What is kept where. `schema` is a StructType, its DDL, or None to derive it from records."""

    bootstrap_servers: str
    topic: str
    table: str
    schema: StructType | str | None = None
    dead_letters: str = ""
    checkpoint: str = ""
    options: dict[str, str] = field(default_factory=dict)
    """More options of the source, as `maxOffsetsPerTrigger`."""
    json_lines: bool = False
    """Whether each line of a value is a document, and so a row of its own."""


class Counted(NamedTuple):
    """What the tables have after a run."""

    rows: int
    dead_letters: int
    version: int


def keep_table(spark: SparkSession, job: TableJob, *, follow: bool = False) -> TableQuery:
    """Start the job; without `follow` it ends with what is in the topic now.

    Raises PipelineFault for a table or a checkpoint that does not fit.
    """
    _folders(job)
    spark.dataSource.register(TableSource)
    parses: list[StructType] = []

    def begin() -> StreamingQuery:
        _make_active(spark)
        parses[:] = [_schema(spark, job)]
        return _started(spark, job, parses[0], follow=follow)

    def has_grown() -> bool:
        known = schema_of_table(_folders(job)[0])
        return job.schema is None and known is not None and set(known.names) > set(parses[0].names)

    return TableQuery(begin, has_grown)


def _make_active(spark: SparkSession) -> None:
    """Spark looks for the sink in the session that is active in the thread; making any DataFrame
    makes its session that one."""
    spark.createDataFrame([], "nothing int")


def _started(
    spark: SparkSession, job: TableJob, schema: StructType, *, follow: bool
) -> StreamingQuery:
    table, dead_letters, checkpoint = _folders(job)
    _check_kept(Path(checkpoint), table, dead_letters)
    prepare(table, StructType([*schema.fields, *PLACE.fields]))
    prepare(dead_letters, DEAD_LETTER)
    application = _application(Path(checkpoint), table)
    source = {"startingOffsets": "earliest", **_source(job)}
    records = _documents(spark.readStream.format("anabranch").options(**source).load(), job)
    rows = parsed(records, schema, grows=job.schema is None)
    writer = rows.writeStream.format(FORMAT)
    writer = writer.option("table", table).option("deadLetters", dead_letters)
    writer = writer.option("application", application).queryName(f"{job.topic} to {table}")
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.start() if follow else writer.trigger(availableNow=True).start()


def _schema(spark: SparkSession, job: TableJob) -> StructType:
    if job.schema is not None:
        return given_schema(job.schema)
    known = schema_of_table(_folders(job)[0])
    if known is not None and known.names:
        return known
    records = _documents(spark.read.format("anabranch").options(**_source(job)).load(), job)
    return derived_schema(records, job.topic)


def counted(job: TableJob) -> Counted:
    """Rows and version of the job's tables."""
    from deltalake import DeltaTable

    table, dead_letters, _ = _folders(job)
    known = DeltaTable(table)
    return Counted(known.count(), DeltaTable(dead_letters).count(), known.version())


def _documents(records: DataFrame, job: TableJob) -> DataFrame:
    """A row for each document: the records themselves, or each of their lines that is not blank. A
    value without such a line stays as it is, so that it becomes a dead letter."""
    if not job.json_lines:
        return records
    lines = F.filter(F.split(F.col("value").cast("string"), "\n"), lambda line: F.trim(line) != "")
    kept = F.when(F.size(lines) > 0, F.transform(lines, lambda line: line.cast("binary")))
    return records.withColumn("value", F.explode(F.coalesce(kept, F.array("value"))))


def parsed(records: DataFrame, schema: StructType, *, grows: bool = False) -> DataFrame:
    """Records as the sink takes them: what fits, what is dead and the reason, and, where the schema
    grows, the text of those that fit and have more fields."""
    text = F.col("value").cast("string")
    asked = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    rows = records.withColumn(
        "_row", F.from_json(text, asked, {"columnNameOfCorruptRecord": CORRUPT})
    )
    more = F.array_except(F.json_object_keys(text), _names(schema.names))
    rows = rows.withColumn("_more", more if grows else F.array().cast("array<string>"))
    rows = rows.withColumn(REASON, _reason(text, schema))
    place = [F.col(each.removeprefix("_")).alias(each) for each in PLACE.names]
    fields = [F.col("_row").getField(name).alias(name) for name in schema.names]
    dead = [F.col("key"), F.col("value"), F.col(REASON).alias("reason")]
    fits = F.col(REASON).isNull()
    return rows.select(
        F.when(fits, F.struct(*fields, *place)).alias(FITS),
        F.when(~fits, F.struct(*dead, *place)).alias(DEAD),
        F.col(REASON),
        F.when(fits & (F.size("_more") > 0), text).alias(MORE),
    )


def _names(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(each) for each in names)).cast("array<string>")


def _reason(text: Column, schema: StructType) -> Column:
    """Why a record is a dead letter; null for one that fits."""
    variant, as_text = _whole(text, schema)
    kind = F.schema_of_variant(variant)
    wraps = _wraps(text, schema)
    wrong = [
        F.when(
            as_text.getField(each.name).isNotNull() & F.col("_row").getField(each.name).isNull()
            | wraps.get(each.name, F.lit(False)),
            F.lit(f"{each.name} ({each.dataType.simpleString()})"),
        )
        for each in schema.fields
    ]
    no_column = _no_columns(schema)
    return (
        F.when(F.col("value").isNull(), F.lit("the value is null"))
        .when(variant.isNull() & F.try_parse_json(text).isNotNull(), F.lit(GOES_ON))
        .when(variant.isNull(), F.lit("the value is not JSON"))
        .when(~kind.startswith("OBJECT"), F.concat(F.lit("the value is no object but "), kind))
        .when(as_text.isNull(), F.lit(GOES_ON))
        .when(_overflows(text, variant), F.lit("a number is beyond the range of double"))
        .when(
            reduce(or_, wraps.values(), F.col("_row").getField(CORRUPT).isNotNull()),
            F.concat(F.lit("does not fit: "), F.concat_ws(", ", *wrong)),
        )
        .when(
            F.size(no_column) > 0,
            F.concat(F.lit("fields that cannot be columns: "), F.concat_ws(", ", no_column)),
        )
    )


def _whole(text: Column, schema: StructType) -> tuple[Column, Column]:
    """The text's document as a variant, and the fields of the schema as text; null where the text
    is not exactly one document, and the second also where that is no object.

    Spark stops at the end of the first document. What follows it would have to go on as an object
    does for the one, and to close an array for the other: nothing does both.
    """
    in_object = F.try_parse_json(F.concat(F.lit('{"value":'), text, F.lit(',"end":1}')))
    ends = F.try_variant_get(in_object, "$.end", "int").isNotNull()
    variant = F.when(ends, F.try_variant_get(in_object, "$.value", "variant"))
    fields = StructType([StructField(each, StringType()) for each in schema.names])
    in_array = F.from_json(F.concat(F.lit("["), text, F.lit("]")), ArrayType(fields))
    return variant, F.when(F.size(in_array) == 1, in_array[0])


def _overflows(text: Column, variant: Column) -> Column:
    """Whether a number is too large for a double: Spark reads it as infinite, and writes it as the
    string "Infinity", so that there are more of these than came. Only texts with a long number are
    looked at closely."""

    def infinite(json: Column) -> Column:
        strings = F.regexp_extract_all(json, F.lit(r'"(?:\\.|[^"\\])*"'), F.lit(0))
        return F.size(F.filter(strings, lambda each: each.isin('"Infinity"', '"-Infinity"')))

    is_suspect = text.rlike(r"[eE]\+?\d{3}|\d{309}")
    return is_suspect & (infinite(F.to_json(variant)) > infinite(text))


def _wraps(text: Column, schema: StructType) -> dict[str, Column]:
    """For each field with a tinyint, at whatever depth: whether some number does not fit it. Spark
    takes 128 to 255 for a tinyint, and makes them negative; as bigint they are what they were."""
    wide = {each.name: _widened(each.dataType) for each in schema.fields}
    names = [each.name for each in schema.fields if wide[each.name] != each.dataType]
    right = F.from_json(text, StructType([StructField(name, wide[name]) for name in names]))

    def shown(rows: Column, name: str) -> Column:  # maps have text to compare, and no equality
        return F.to_json(F.struct(rows.getField(name).alias("field")))

    return {name: shown(right, name) != shown(F.col("_row"), name) for name in names}


def _widened(kind: DataType) -> DataType:
    """A type with bigint wherever it has tinyint."""
    if isinstance(kind, ByteType):
        return LongType()
    if isinstance(kind, ArrayType):
        return ArrayType(_widened(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _widened(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _widened(each.dataType)) for each in kind.fields])
    return kind


def _no_columns(schema: StructType) -> Column:
    """The fields of a record that `fields.columns_of` refuses beside those of the schema."""
    taken = [each.lower() for each in (*schema.names, *RESERVED)]
    refused = f"^$|[{re.escape(NOT_IN_NAMES)}]"
    return F.filter("_more", lambda name: F.lower(name).isin(taken) | name.rlike(refused))


def _folders(job: TableJob) -> tuple[str, str, str]:
    """The table's folder, the dead letters' and the checkpoint's. Raises PipelineFault."""
    table = job.table.rstrip("/")
    named = (
        table,
        job.dead_letters or f"{table}-dead-letters",
        job.checkpoint or f"{table}-checkpoint",
    )
    for each in named:
        if not table or "://" in each:
            raise PipelineFault(
                f"{each!r} is not a folder: tasks write files, so name a folder that the driver "
                "and all executors share."
            )
    first, second, third = (str(Path(each).absolute()) for each in named)
    for one, other in permutations((first, second, third), 2):
        inner, outer = Path(one).resolve(), Path(other).resolve()
        if inner.is_relative_to(outer) and not _is_hidden(inner.relative_to(outer)):
            raise PipelineFault(
                f"Table, dead letters and checkpoint need folders of their own: {one} is, or lies "
                f"in, {other}. Name another one."
            )
    return first, second, third


def _is_hidden(inner: Path) -> bool:
    """Whether a folder within a Delta table is none of its own, as `_checkpoint` is: readers and
    VACUUM leave folders alone whose names begin with "_"."""
    first = inner.parts[0] if inner.parts else ""
    return first.startswith("_") and first != "_delta_log"


def _source(job: TableJob) -> dict[str, str]:
    """Records of aborted transactions are none: a program that tries again writes them again."""
    committed = {} if any(each.lower() == ISOLATION for each in job.options) else COMMITTED
    return {
        **committed,
        **job.options,
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "subscribe": job.topic,
    }


def _check_kept(checkpoint: Path, table: str, dead_letters: str) -> None:
    """Refuse a checkpoint of another table, and one whose tables are gone: what it has behind it
    would be in no table. Both tables are made before the checkpoint is."""
    from deltalake import DeltaTable

    path = checkpoint / IDENTITY
    if not path.exists():
        return
    known = _identity(path)["table"]
    if known != table:
        raise PipelineFault(
            f"The checkpoint {checkpoint} belongs to the table {known}, not to {table}: name that "
            "table, or another checkpoint."
        )
    for each in (table, dead_letters):
        if not DeltaTable.is_deltatable(each):
            raise PipelineFault(
                f"The table {each} is gone, and its checkpoint {checkpoint} is not: records that "
                "the checkpoint counts as done would be missing. Restore the table; or remove "
                "checkpoint, table and dead letters, to begin with the oldest record."
            )


def _identity(path: Path) -> dict[str, str]:
    """What the checkpoint says of the job. Raises PipelineFault."""
    try:
        known = json.loads(path.read_text())
        return {name: str(known[name]) for name in ("application", "table")}
    except (ValueError, KeyError, TypeError):
        raise PipelineFault(
            f"The file {path} is damaged: it names no job. Restore it; or remove checkpoint, table "
            "and dead letters, to begin with the oldest record."
        ) from None


def _application(checkpoint: Path, table: str) -> str:
    """The job's name in the tables; it is made with the checkpoint and lasts as long."""
    path = checkpoint / IDENTITY
    if not path.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        name = f"anabranch-{uuid.uuid4()}"
        part.write_text(json.dumps({"application": name, "table": table}))
        part.replace(path)
    return _identity(path)["application"]
