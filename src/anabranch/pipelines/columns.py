"""The columns of the source, by the names and types that Spark's own Kafka source gives them.

A job that reads `format("kafka")` finds the same columns here. `timestampType` is 0 for the
producer's time, 1 for the time at which the leader appended, -1 for none.
"""

from __future__ import annotations

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
