"""What `df.write` and `df.writeStream` write with: records of topics, at least or exactly once.

Options and columns are those of Spark's own Kafka sink. On the driver options and columns are
checked. At least once, nothing is committed: rows are in their topics when a task is done, as with
Spark's sink (decision 49). With `exactlyOnce` the driver commits what tasks have prepared
(decision 87). Not here: a task's work (sink_task.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.lanes import remedy
from anabranch.core.errors import ApiError
from anabranch.core.sentences import number_of
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.requirements import check_packages
from anabranch.pipelines.sink_options import SinkOptions, read_options
from anabranch.pipelines.sink_rows import SinkColumns, columns_of
from anabranch.pipelines.sink_scope import Scope
from anabranch.pipelines.sink_task import Written, write_rows
from anabranch.pipelines.sink_transactions import abort, commit

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
        """On the driver: every task is done, so every row is acknowledged. Raises PipelineFault."""
        _commit(self._options, messages)
        _log.info("%s", summary(messages))

    def abort(self, messages: Messages) -> None:
        """On the driver: what some tasks wrote stays in the topics, but with exactlyOnce."""
        _abort(self._options)
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
        """On the driver: every row of the micro-batch is acknowledged. Raises PipelineFault."""
        _commit(self._options, messages)
        _log.info("Micro-batch %d: %s", batchId, summary(messages))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """On the driver: what some tasks wrote stays, but with exactlyOnce; it is repeated."""
        _abort(self._options)
        _log.warning("Micro-batch %d was given up. %s", batchId, summary(messages))


def writer_of(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SinkWriter:
    """The writer for `df.write`. Raises PipelineFault."""
    if overwrite:
        raise PipelineFault(
            "mode('overwrite') is refused, as a topic is not replaced: use mode('append'), or "
            "delete the topic and create it again first."
        )
    return SinkWriter(*_checked(options, schema, is_stream=False))


def stream_writer_of(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> SinkStreamWriter:
    """The writer for `df.writeStream`; in the mode `complete` every result is written whole, after
    the ones before it, as by Spark's own sink. Raises PipelineFault."""
    return SinkStreamWriter(*_checked(options, schema, is_stream=True))


def summary(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Rows, bytes and batches of all tasks, in words."""
    done = [each for each in messages if isinstance(each, Written)]
    total = reduce(add, done, Written())
    return (
        f"{number_of(total.rows, 'row')} acknowledged in "
        f"{number_of(total.batches, 'batch', 'batches')} of "
        f"{total.size_bytes} bytes, by {number_of(len(done), 'task')}."
    )


def _checked(
    options: Mapping[str, str], schema: StructType, *, is_stream: bool
) -> tuple[SinkOptions, SinkColumns]:
    check_packages()
    read = read_options(options, is_stream=is_stream)
    return read, columns_of(schema, read.topic)


def _commit(options: SinkOptions, messages: Messages) -> None:
    prepared = [each.prepared for each in messages if isinstance(each, Written)]
    chosen = [each for each in prepared if each is not None]
    if options.scope is not None:
        _on_the_cluster(
            options, lambda cluster, scope: commit(cluster, scope, chosen),
            "The write was not, or not all, committed; nothing of it is there twice.",
        )  # fmt: skip


def _abort(options: SinkOptions) -> None:
    if options.scope is not None:
        _on_the_cluster(options, abort, "The write was given up, and some of it is still open.")


def _on_the_cluster(
    options: SinkOptions,
    work: Callable[[Cluster, Scope], Awaitable[None]],
    what: str,
) -> None:
    """Do it on the driver, to its end. Raises PipelineFault, which says what was not done."""

    async def run() -> None:
        assert options.scope is not None
        async with Cluster(
            options.bootstrap_servers, client_id=options.client_id, security=options.security
        ) as cluster:
            await work(cluster, options.scope)

    try:
        asyncio.run(run())
    except (ApiError, ConnectionLost) as fault:
        raise PipelineFault(f"{what} {fault}{remedy(fault)}") from None
