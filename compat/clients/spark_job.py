"""Spark's own Kafka connector against one bootstrap address, in batches and as a stream.

Run by an interpreter that has PySpark: `python spark_job.py ADDRESS JARS FOLDER`, where JARS are
the connector's, separated by commas, and FOLDER takes checkpoints. It prints one JSON object, a
member a scenario. It knows nothing of who answers at the address.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FIRST_MS = 1_700_000_000_000
"""The time of the first record; each next one is a second later."""
COUNT = 300
PARTITIONS = 3


def session(jars: str) -> SparkSession:
    """Local Spark with the connector."""
    builder = SparkSession.builder.master("local[2]").appName("compat")
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Job:
    """The scenarios, in the order in which they build on one another."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.folder = folder

    def numbers(self, first: int, beyond: int, topic: str) -> DataFrame:
        """Records with key, value, headers, partition and timestamp, for the connector to write."""
        return self.spark.range(first, beyond, 1, 2).selectExpr(
            f"'{topic}' as topic",
            "concat('key-', id) as key",
            "case when id % 50 = 49 then null else concat('value-', id) end as value",
            f"cast(id % {PARTITIONS} as int) as partition",
            "array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary)))"
            " as headers",
        )

    def write(self, records: DataFrame) -> None:
        """Write a batch."""
        kafka = records.write.format("kafka").option("kafka.bootstrap.servers", self.address)
        kafka.option("includeHeaders", "true").save()

    def read(self, topic: str, **options: str) -> DataFrame:
        """Read a batch."""
        kafka = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        return kafka.option("subscribe", topic).options(**options).load()

    def writes_and_reads(self) -> Any:
        """A batch goes in, and comes back with keys, nulls, headers and offsets."""
        self.write(self.numbers(0, COUNT, "spark-batch"))
        read = self.read("spark-batch", includeHeaders="true").selectExpr(
            "cast(key as string)",
            "cast(value as string)",
            "partition",
            "offset",
            "timestampType",
            "transform(headers, one -> concat(one.key, '=', cast(one.value as string))) as headers",
        )
        rows = [row.asDict(recursive=True) for row in read.collect()]
        places = sorted([row["partition"], row.pop("offset")] for row in rows)
        return places, sorted(rows, key=lambda row: row["key"])

    def reads_between_offsets(self) -> Any:
        """Starting and ending offsets of each partition bound a batch."""
        start = {"0": 10, "1": -2, "2": 95}
        end = {"0": 20, "1": 5, "2": -1}
        options = {
            "startingOffsets": json.dumps({"spark-batch": start}),
            "endingOffsets": json.dumps({"spark-batch": end}),
        }
        rows = self.read("spark-batch", **options).select("partition", "offset").collect()
        return sorted([row.partition, row.offset] for row in rows)

    def reads_between_times(self) -> Any:
        """Starting and ending times bound a batch."""
        options = {
            "startingTimestamp": str(FIRST_MS + 40_000),
            "endingTimestamp": str(FIRST_MS + 60_000),
        }
        rows = self.read("spark-times", **options).selectExpr("offset", "cast(value as string)")
        return sorted([row.offset, row.value] for row in rows.collect())

    def reads_a_pattern(self) -> Any:
        """A pattern of names, and partitions by number."""
        kafka = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        by_name = kafka.option("subscribePattern", "spark-(batch|times)").load()
        counts = by_name.groupBy("topic").count().collect()
        kafka = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        wanted = json.dumps({"spark-batch": [1]})
        return sorted(map(list, counts)), kafka.option("assign", wanted).load().count()

    def splits_partitions(self) -> Any:
        """More Spark partitions than Kafka's: ranges of offsets of one partition in parallel."""
        read = self.read("spark-batch", minPartitions="8")
        return read.rdd.getNumPartitions() >= 8, read.count()

    def stream(self, source: str, sink: str, per_trigger: int | None = None) -> list[int]:
        """Everything there is from a topic into another; rows of each micro-batch."""
        kafka = self.spark.readStream.format("kafka").option("subscribe", source)
        kafka = kafka.option("kafka.bootstrap.servers", self.address)
        kafka = kafka.option("startingOffsets", "earliest")
        if per_trigger:
            kafka = kafka.option("maxOffsetsPerTrigger", str(per_trigger))
        query = (
            kafka.load()
            .selectExpr("key", "upper(cast(value as string)) as value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.address)
            .option("topic", sink)
            .option("checkpointLocation", str(self.folder / f"{source}-to-{sink}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]

    def streams(self) -> Any:
        """A stream copies a topic in micro-batches, and goes on from its checkpoint."""
        self.write(self.numbers(0, COUNT, "spark-stream"))
        first = self.stream("spark-stream", "spark-copy", per_trigger=150)
        self.write(self.numbers(COUNT, COUNT + 60, "spark-stream"))
        second = self.stream("spark-stream", "spark-copy", per_trigger=150)
        third = self.stream("spark-stream", "spark-copy", per_trigger=150)
        copied = self.read("spark-copy").selectExpr("cast(key as string)", "cast(value as string)")
        return first, second, third, sorted([row.key, row.value] for row in copied.collect())

    def counts_times(self) -> Any:
        """A stateful stream counts records by their times."""
        kafka = self.spark.readStream.format("kafka").option("subscribe", "spark-times")
        kafka = kafka.option("kafka.bootstrap.servers", self.address)
        counted = (
            kafka.option("startingOffsets", "earliest")
            .load()
            .groupBy("timestamp")
            .count()
            .writeStream.format("memory")
            .queryName("counted")
            .outputMode("complete")
            .option("checkpointLocation", str(self.folder / "times"))
            .trigger(availableNow=True)
            .start()
        )
        counted.awaitTermination()
        rows = self.spark.sql("select cast(timestamp as long) as second, count from counted")
        return sorted([row.second, row["count"]] for row in rows.collect())

    def is_refused(self) -> Any:
        """A topic that is not there, and offsets that are gone, end the job with an error."""
        gone = json.dumps({"spark-batch": {"0": 9999, "1": 9999, "2": 9999}})
        refused = {}
        for what, read in {
            "gone": self.read("spark-batch", startingOffsets=gone),
            "unknown": self.read("spark-nobody", **{"kafka.allow.auto.create.topics": "false"}),
        }.items():
            try:
                refused[what] = str(read.count())
            except Exception as error:
                refused[what] = cause(error)
        return refused


def cause(error: Exception) -> str:
    """The Java exception at the bottom of an error, or the error's own class."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return type(error).__name__ if java is None else java.getClass().getName()


SCENARIOS = (
    Job.writes_and_reads,
    Job.reads_between_offsets,
    Job.reads_between_times,
    Job.reads_a_pattern,
    Job.splits_partitions,
    Job.streams,
    Job.counts_times,
    Job.is_refused,
)


def main() -> None:
    """Run every scenario, and print what each saw, or what ended it."""
    address, jars, folder = sys.argv[1:]
    spark = session(jars)
    spark.sparkContext.setLogLevel("FATAL")
    job = Job(spark, address, Path(folder))
    seen: dict[str, Any] = {}
    for scenario in SCENARIOS:
        try:
            seen[scenario.__name__] = {"saw": scenario(job)}
        except Exception as error:
            seen[scenario.__name__] = {"failed": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(seen) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
