"""The job `tables`: the JSON records of a topic as rows of a Delta table, each exactly once.

What: a stream reads the topic, Spark parses the values by the schema, rows that fit go to the table
and the others, as they came and with the reason, to a table of dead letters (table_sink.py). The
checkpoint says how far the job is; it holds the name under which the tables know the job, so that a
micro-batch that is run again after a crash is not added twice. Rules kept: a checkpoint belongs to
one table; a field that the table has is not changed; fields that are new are added when the job
starts. Not here: changes of the schema while it runs.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.table_sink import DEAD, FITS, FORMAT, REASON, TableSource

PLACE = StructType(
    [
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
        StructField("_timestamp", TimestampType()),
    ]
)
"""Where a row comes from: columns of both tables, behind the others."""
DEAD_LETTER = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("reason", StringType()),
        *PLACE.fields,
    ]
)
CORRUPT = "_corrupt"
IDENTITY = "anabranch-table.json"
"""A file in the checkpoint: the job's name in the tables, and the table it belongs to."""
SAMPLED = 10_000
"""Records that a schema is derived from, when none is given."""


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


class Counted(NamedTuple):
    """What the tables have after a run."""

    rows: int
    dead_letters: int
    version: int


def keep_table(spark: SparkSession, job: TableJob, *, follow: bool = False) -> StreamingQuery:
    """Start the job; without `follow` it ends with what is in the topic now.

    Raises PipelineFault for a table or a checkpoint that does not fit.
    """
    table, dead_letters, checkpoint = _folders(job)
    schema = _schema(spark, job)
    _prepare(table, StructType([*schema.fields, *PLACE.fields]))
    _prepare(dead_letters, DEAD_LETTER)
    application = _application(Path(checkpoint), table)
    spark.dataSource.register(TableSource)
    source = {"startingOffsets": "earliest", **_source(job)}
    records = spark.readStream.format("anabranch").options(**source).load()
    writer = parsed(records, schema).writeStream.format(FORMAT)
    writer = writer.option("table", table).option("deadLetters", dead_letters)
    writer = writer.option("application", application)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.start() if follow else writer.trigger(availableNow=True).start()


def counted(job: TableJob) -> Counted:
    """Rows and version of the job's tables."""
    from deltalake import DeltaTable

    table, dead_letters, _ = _folders(job)
    known = DeltaTable(table)
    return Counted(known.count(), DeltaTable(dead_letters).count(), known.version())


def parsed(records: DataFrame, schema: StructType) -> DataFrame:
    """Records as the sink takes them: what fits, what is dead, and the reason."""
    text = F.col("value").cast("string")
    asked = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    rows = records.withColumn(
        "_row", F.from_json(text, asked, {"columnNameOfCorruptRecord": CORRUPT})
    )
    rows = rows.withColumn(REASON, _reason(text, schema))
    place = [F.col(each.removeprefix("_")).alias(each) for each in PLACE.names]
    fields = [F.col("_row").getField(name).alias(name) for name in schema.names]
    dead = [F.col("key"), F.col("value"), F.col(REASON).alias("reason")]
    return rows.select(
        F.when(F.col(REASON).isNull(), F.struct(*fields, *place)).alias(FITS),
        F.when(F.col(REASON).isNotNull(), F.struct(*dead, *place)).alias(DEAD),
        F.col(REASON),
    )


def _reason(text: Column, schema: StructType) -> Column:
    """Why a record is a dead letter; null for one that fits."""
    variant = F.try_parse_json(text)
    kind = F.schema_of_variant(variant)
    as_text = F.from_json(
        text, StructType([StructField(each, StringType()) for each in schema.names])
    )
    wrong = [
        F.when(
            as_text.getField(each.name).isNotNull() & F.col("_row").getField(each.name).isNull(),
            F.lit(f"{each.name} ({each.dataType.simpleString()})"),
        )
        for each in schema.fields
    ]
    return (
        F.when(F.col("value").isNull(), F.lit("the value is null"))
        .when(variant.isNull(), F.lit("the value is not JSON"))
        .when(~kind.startswith("OBJECT"), F.concat(F.lit("the value is no object but "), kind))
        .when(
            F.col("_row").getField(CORRUPT).isNotNull(),
            F.concat(F.lit("does not fit: "), F.concat_ws(", ", *wrong)),
        )
    )


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
    return first, second, third


def _source(job: TableJob) -> dict[str, str]:
    return {
        **job.options,
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "subscribe": job.topic,
    }


def _schema(spark: SparkSession, job: TableJob) -> StructType:
    schema = job.schema
    if schema is None:
        schema = _derived(spark, job)
    elif isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except Exception as problem:
            raise PipelineFault(
                f"The schema {schema!r} cannot be read: write it as 'id bigint, name string'. "
                f"{str(problem).splitlines()[0]}"
            ) from None
    taken = sorted({*PLACE.names, CORRUPT} & set(schema.names))
    if taken or not schema.names:
        what = f"has {', '.join(taken)}, which the job writes itself" if taken else "has no field"
        raise PipelineFault(f"The schema {what}: give another one.")
    return schema


def _derived(spark: SparkSession, job: TableJob) -> StructType:
    """The schema of the first records, as Spark derives it from JSON."""
    records = spark.read.format("anabranch").options(**_source(job)).load()
    values = records.select(F.col("value").cast("string")).limit(SAMPLED)
    found = spark.read.json(values.rdd.map(lambda row: row[0] or ""))
    fields = [each for each in found.schema.fields if each.name != "_corrupt_record"]
    if not fields:
        raise PipelineFault(
            f"No schema can be derived: none of the first {SAMPLED} records of topic "
            f"{job.topic!r} is a JSON object. Give a schema, as 'id bigint, name string'."
        )
    return StructType(fields)


def _prepare(table: str, schema: StructType) -> None:
    """Create the table, or add the fields that it lacks. Raises PipelineFault for another type."""
    from deltalake import DeltaTable
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    if not DeltaTable.is_deltatable(table):
        DeltaTable.create(table, wanted)
        return
    from deltalake import Schema

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


def _application(checkpoint: Path, table: str) -> str:
    """The job's name in the tables; it is made with the checkpoint and lasts as long."""
    path = checkpoint / IDENTITY
    if not path.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        name = f"anabranch-{uuid.uuid4()}"
        part.write_text(json.dumps({"application": name, "table": table}))
        part.replace(path)
    known = json.loads(path.read_text())
    if known["table"] != table:
        raise PipelineFault(
            f"The checkpoint {checkpoint} belongs to the table {known['table']}, not to {table}: "
            "name that table, or another checkpoint."
        )
    return str(known["application"])
