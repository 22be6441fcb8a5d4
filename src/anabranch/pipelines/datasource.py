"""`format("anabranch")`: the data source that Spark asks for readers and writers.

What: one class whose methods name the modules that do the work, each imported when it is asked for,
so that a job that only writes imports no reader. Rule kept: nothing here looks at a cluster.
Source: PySpark's Python Data Source API (`pyspark.sql.datasource`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "anabranch"


class AnabranchDataSource(DataSource):
    """Topics of a cluster as DataFrames; options are those of Spark's own Kafka source and sink."""

    @classmethod
    def name(cls) -> str:
        """The word that `format` takes."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of what is read; options decide. Raises for options that make no sense."""
        from anabranch.pipelines.source import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What `spark.read` reads with."""
        from anabranch.pipelines.source import reader_of

        return reader_of(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """What `spark.readStream` reads with."""
        from anabranch.pipelines.stream_source import stream_reader_of

        return stream_reader_of(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What `df.write` writes with."""
        from anabranch.pipelines.sink import writer_of

        return writer_of(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """What `df.writeStream` writes with."""
        from anabranch.pipelines.sink import stream_writer_of

        return stream_writer_of(self.options, schema, overwrite=overwrite)
