"""A Spark source of batches that are ready, with the columns of the Kafka source: no source in
Python can be faster, whatever it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
BATCH_ROWS = 10_000


class CeilingSource(DataSource):
    """`format("ceiling")`; options rows, valuebytes and partitions."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "ceiling"

    def schema(self) -> str:
        """The columns of Spark's Kafka source."""
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        """See DataSource."""
        return CeilingReader(self.options)


class CeilingReader(DataSourceReader):
    """Yields the same batch again and again."""

    def __init__(self, options: Any) -> None:
        self._rows = int(options["rows"])
        self._value_bytes = int(options["valuebytes"])
        self._partitions = int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        """One task a partition."""
        return [InputPartition(each) for each in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches that were made before the first was asked for."""
        count = min(BATCH_ROWS, self._rows // self._partitions)
        ready = _batch(count, self._value_bytes, partition.value)
        for _ in range(self._rows // self._partitions // count):
            yield ready


def _batch(count: int, value_bytes: int, partition: int) -> pa.RecordBatch:
    values = [bytes([each % 256]) * value_bytes for each in range(count)]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(["measured"] * count, pa.string()),
            pa.array([partition] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", "UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        names=names,
    )
