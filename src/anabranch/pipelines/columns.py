"""The columns of the source, by the names and types that Spark's own Kafka source gives them.

A job that reads `format("kafka")` finds the same columns here. `timestampType` is 0 for the
producer's time and 1 for the time at which the leader appended; `headers` is null without any.
With `shape=batches` a row is a record batch as it lies in the log.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""A row a record."""

RECORDS_WITH_HEADERS = StructType([*RECORDS.fields, StructField("headers", HEADERS)])
"""The same with `includeHeaders`."""

BATCHES = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("baseOffset", LongType()),
        StructField("lastOffset", LongType()),
        StructField("recordCount", IntegerType()),
        StructField("codec", StringType()),
        StructField("maxTimestamp", TimestampType()),
        StructField("producerId", LongType()),
        StructField("producerEpoch", IntegerType()),
        StructField("baseSequence", IntegerType()),
        StructField("bytes", BinaryType()),
    ]
)
"""A row a record batch; `bytes` is the whole batch with its header."""


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark demands of a source with these columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
