"""One task of the sink: Arrow batches from Spark to acknowledged record batches.

What: gathers rows until two megabytes are there, chooses their partitions, encodes them, and
hands them to an idempotent producer that sends while the next rows come. Rules kept: a task holds
at most what is gathered and `buffer.memory` of what is not acknowledged; it ends well only when
every row is acknowledged; it keeps nothing for another attempt, which writes its rows once more.
With `exactlyOnce` they are in a transaction, which the task leaves open for the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.lanes import OutgoingBatch, ProduceFailed, remedy
from anabranch.client.prepared_transactions import Prepared
from anabranch.client.producer import Producer
from anabranch.client.transactional_producer import MustAbort, TransactionalProducer
from anabranch.core.errors import ApiError
from anabranch.pipelines.arrow_columns import absent, column_of, headers_of
from anabranch.pipelines.background import Background
from anabranch.pipelines.encoder import Rows, RowTooLarge, encoder, finished
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.partitioner import Chooser, Topics
from anabranch.pipelines.sink_options import SinkOptions
from anabranch.pipelines.sink_rows import SinkColumns
from anabranch.pipelines.sink_transactions import this_attempt
from anabranch.pipelines.worker import leave_out_of_collections

GATHERED_BYTES = 2 << 20
"""Rows are encoded so many at a time: enough that many partitions still get batches of a size that
is worth a request, little enough to stay in a worker's memory several times over. With a smaller
`buffer.memory`, half of that."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote: rows, and bytes of batches before acknowledgement."""

    rows: int = 0
    size_bytes: int = 0
    batches: int = 0
    prepared: Prepared | None = None
    """The transaction that has them, for the driver to end."""

    def __add__(self, other: Written) -> Written:
        return Written(
            self.rows + other.rows, self.size_bytes + other.size_bytes,
            self.batches + other.batches,
        )  # fmt: skip


def write_rows(options: SinkOptions, columns: SinkColumns, batches: Iterable[Any]) -> Written:
    """Write all rows and wait until they are acknowledged. Raises PipelineFault."""
    with Background() as background:
        try:
            written = SinkTask(options, columns, background).run(batches)
        except (ApiError, ConnectionLost, ProduceFailed, MustAbort) as fault:
            raise PipelineFault(
                f"The rows of this task were not all written. {fault}{remedy(fault)}"
            ) from None
    leave_out_of_collections()
    return written


class SinkTask:
    """The state of one task. Nothing is dialled before there is a row."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, background: Background) -> None:
        wanted = [each for each in columns if each is not None]
        at = {index: position for position, index in enumerate(wanted)}
        self._wanted = wanted
        self._columns = SinkColumns._make(None if each is None else at[each] for each in columns)
        self._options = options
        self._background = background
        self._encoder = encoder()
        self._cluster = Cluster(
            options.bootstrap_servers, client_id=options.client_id, security=options.security
        )
        self._producer: Producer | None = None
        self._attempt = None if options.scope is None else this_attempt(options.scope)
        self._chooser = Chooser(
            self._encoder,
            lambda topic: background.call(self._partition_count(topic)),
            batch_bytes=options.batch_bytes,
            ignores_keys=options.ignores_keys,
            in_turn=options.in_turn,
        )
        self._written = Written()

    def run(self, batches: Iterable[Any]) -> Written:
        """Write everything; what was written is told when all of it is acknowledged."""
        most = min(GATHERED_BYTES, self._options.producer.buffer_bytes // 2)
        try:
            if self._attempt is not None and self._background.call(self._was_committed()):
                for _ in batches:
                    pass  # Spark sends them all the same
                return self._written
            for rows in gathered((each.select(self._wanted) for each in batches), most):
                self._write(rows)
            self._background.call(self._flush())
        finally:
            self._background.call(self._close())
        return self._written

    async def _was_committed(self) -> bool:
        assert self._attempt is not None
        await self._cluster.retrying(lambda: self._cluster.metadata([]))
        return await self._attempt.was_committed(self._cluster)

    async def _open(self) -> Producer:
        if self._producer is None and self._attempt is not None:
            self._producer = await self._attempt.begin(self._cluster, self._options.producer)
        elif self._producer is None:
            self._producer = await Producer.open(self._cluster, self._options.producer)
        return self._producer

    async def _partition_count(self, topic: str) -> int:
        return await (await self._open()).partition_count(topic)

    async def _send(self, outgoing: list[OutgoingBatch]) -> None:
        await (await self._open()).send(outgoing)

    async def _flush(self) -> None:
        if isinstance(self._producer, TransactionalProducer):
            assert self._attempt is not None
            topic = self._chooser.lanes[0][0]
            self._written.prepared = await self._attempt.prepare(self._producer, topic)
        elif self._producer is not None:
            await self._producer.flush()

    async def _close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
        await self._cluster.close()

    def _write(self, batch: Any) -> None:
        rows = self._rows(batch)
        sizes = rows.key.sizes + rows.value.sizes
        topics, partition = self._topics(batch), self._partition(batch)
        lanes = self._chooser.lanes_of(topics, partition, rows.key, sizes)
        order = np.argsort(lanes, kind="stable")
        try:
            plain = self._encoder.encode(
                rows, order, lanes,
                limit_bytes=min(self._options.batch_bytes, self._options.request_bytes),
                longest_bytes=self._options.request_bytes,
            )  # fmt: skip
        except RowTooLarge as fault:
            raise self._too_large(fault, int(lanes[fault.row])) from None
        options, now_ms = self._options, int(time.time() * 1000)
        outgoing = [
            OutgoingBatch(*self._chooser.lanes[lane], each)
            for lane, each in finished(plain, options.codec, options.level, now_ms)
        ]
        self._background.call(self._send(outgoing))
        self._written += Written(
            batch.num_rows, sum(len(each.batch) for each in outgoing), len(outgoing)
        )

    def _rows(self, batch: Any) -> Rows:
        columns = self._columns
        key = absent(batch.num_rows)
        if columns.key is not None:
            key = column_of(batch.column(columns.key))
        headers = None
        if columns.headers is not None:
            headers = headers_of(batch.column(columns.headers))
            if headers.keys.null[headers.at[0] : headers.at[-1]].any():
                raise PipelineFault(
                    "A row has a header without a key. Give each element of the column `headers` "
                    "a key, or leave it out: filter(headers, each -> each.key IS NOT NULL)."
                )
        return Rows(key, column_of(batch.column(columns.value)), headers)

    def _topics(self, batch: Any) -> Topics:
        if self._columns.topic is None:
            assert self._options.topic is not None
            return Topics([self._options.topic], None)
        coded = batch.column(self._columns.topic).dictionary_encode()
        if coded.null_count:
            row = self._written.rows + int(np.argmax(coded.is_null().to_numpy(False)))
            raise PipelineFault(
                f"Row {row} of this task has no topic: the column `topic` is null. Filter such "
                "rows out, fill the column, or write all rows to one topic: option('topic', …)."
            )
        return Topics(coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64))

    def _partition(self, batch: Any) -> Any:
        if self._columns.partition is None:
            return None
        column = batch.column(self._columns.partition)
        numbers = column.fill_null(0).to_numpy().astype(np.int64)
        return np.ma.MaskedArray(numbers, column.is_null().to_numpy(zero_copy_only=False))

    def _too_large(self, fault: RowTooLarge, lane: int) -> PipelineFault:
        return PipelineFault(
            f"Row {self._written.rows + fault.row} of this task, for "
            f"{self._chooser.lanes[lane]}, is too large: as a batch it has {fault.size_bytes} "
            f"bytes, and kafka.max.request.size is {self._options.request_bytes}. Filter such rows "
            "out or split them, or raise kafka.max.request.size, and the topic's "
            "max.message.bytes with it."
        )


def gathered(batches: Iterable[Any], size_bytes: int) -> Iterator[Any]:
    """The same rows in batches of about `size_bytes`: small ones together, large ones in parts."""
    waiting: list[Any] = []
    waiting_bytes = 0
    for batch in batches:
        for part in _parts(batch, size_bytes):
            waiting.append(part)
            waiting_bytes += part.nbytes
            if waiting_bytes >= size_bytes:
                yield _together(waiting)
                waiting, waiting_bytes = [], 0
    if waiting:
        yield _together(waiting)


def _parts(batch: Any, size_bytes: int) -> Iterator[Any]:
    count = max(1, batch.nbytes // size_bytes)
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(start, rows)


def _together(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
