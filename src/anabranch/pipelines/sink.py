"""What `df.write` and `df.writeStream` write with: records of topics, at least once.

Options and columns are those of Spark's own Kafka sink. On the driver options and columns are
checked, and nothing is committed: rows are in their topics when a task is done, as with Spark's
sink. What holds after a failure: decision 49. Not here: a task's work (sink_task.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.requirements import check_packages
from anabranch.pipelines.sink_options import SinkOptions, read_options
from anabranch.pipelines.sink_rows import SinkColumns, columns_of
from anabranch.pipelines.sink_task import Written, write_rows

_log = logging.getLogger(__name__)
Messages = Sequence[WriterCommitMessage | None]


class SinkWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        """In a task: write its rows. Raises PipelineFault."""
        return write_rows(self._options, self._columns, iterator)

    def commit(self, messages: Messages) -> None:
        """On the driver: every task is done, so every row is acknowledged."""
        _log.info("%s", summary(messages))

    def abort(self, messages: Messages) -> None:
        """On the driver: what some tasks wrote stays in the topics."""
        _log.warning("A write was given up. %s", summary(messages))


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream, one micro-batch after the other."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> Written:
        """In a task of a micro-batch: write its rows. Raises PipelineFault."""
        return write_rows(self._options, self._columns, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """On the driver: every row of the micro-batch is acknowledged."""
        _log.info("Micro-batch %d: %s", batchId, summary(messages))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """On the driver: what some tasks wrote stays, and is written again."""
        _log.warning("Micro-batch %d was given up. %s", batchId, summary(messages))


def writer_of(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkWriter:
    """The writer for `df.write`. Raises PipelineFault."""
    if overwrite:
        raise PipelineFault(
            "mode('overwrite') is refused, as a topic is not replaced: use mode('append'), or "
            "delete the topic and create it again first."
        )
    return SinkWriter(*_checked(options, schema))


def stream_writer_of(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> SinkStreamWriter:
    """The writer for `df.writeStream`; in the mode `complete` every result is written whole, after
    the ones before it, as by Spark's own sink. Raises PipelineFault."""
    return SinkStreamWriter(*_checked(options, schema))


def summary(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Rows, bytes and batches of all tasks, in words."""
    done = [each for each in messages if isinstance(each, Written)]
    total = reduce(add, done, Written())
    return (
        f"{total.rows} row(s) were acknowledged in {total.batches} batch(es) of "
        f"{total.size_bytes} bytes, by {len(done)} task(s)."
    )


def _checked(options: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, SinkColumns]:
    check_packages()
    read = read_options(options)
    return read, columns_of(schema, read.topic)
