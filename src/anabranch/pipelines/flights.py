"""The demo's part on Spark: flights in a topic as a DataFrame, and as a Delta table of a stream.

What: delays are counted for each carrier, as (flights, flights that departed, minutes of delay in
all), so that whoever sent or consumed the flights can compare. An example of source and table job
in forty lines; nothing else uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from anabranch.pipelines.session import local_session
from anabranch.pipelines.table_query import TableQuery
from anabranch.pipelines.tables import TableJob, keep_table

SCHEMA = (
    "row int, time_hour string, carrier string, flight int, tail_number string, origin string, "
    "destination string, distance_miles int, departure_delay int, arrival_delay int, air_time int"
)
CORES = 2
QUIET = {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}

Delays: TypeAlias = dict[str, tuple[int, int, int]]
"""Carrier -> flights, flights that departed, the sum of their departure delays in minutes."""


class Kept(NamedTuple):
    """What a table has."""

    rows: int
    distinct: int
    version: int
    delays: Delays


def start(folder: str) -> SparkSession:
    """A Spark session of this process; its files, and what its JVM says, lie in `folder`. Raises
    NoJava."""
    own = {"spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    with _stderr_to(Path(folder) / "spark.log"):
        return local_session("anabranch demo", cores=CORES, conf={**QUIET, **own})


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What processes that are started meanwhile write to standard error goes to a file."""
    kept = os.dup(2)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def delays_of(spark: SparkSession, bootstrap: str, topic: str) -> Delays:
    """The delays of each carrier in a whole topic."""
    records = (
        spark.read.format("anabranch").option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic).load()
    )  # fmt: skip
    flights = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("flight"))
    return _counted(flights.select("flight.*"))


def _counted(flights: DataFrame) -> Delays:
    counted = flights.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count("departure_delay").alias("departed"),
        F.sum("departure_delay").alias("minutes"),
    )
    return {row.carrier: (row.flights, row.departed, row.minutes or 0) for row in counted.collect()}


def keep(spark: SparkSession, bootstrap: str, topic: str, table: str) -> TableQuery:
    """Keep a Delta table of a topic until the query is stopped."""
    job = TableJob(bootstrap_servers=bootstrap, topic=topic, table=table, schema=SCHEMA)
    return keep_table(spark, job, follow=True)


def kept(spark: SparkSession, table: str) -> Kept:
    """What a table has now."""
    from deltalake import DeltaTable

    known = DeltaTable(table)
    rows = spark.read.parquet(*known.file_uris())
    counted = rows.agg(F.count("*").alias("rows"), F.count_distinct("row").alias("distinct"))
    (found,) = counted.collect()
    return Kept(found.rows, found.distinct, known.version(), _counted(rows))
