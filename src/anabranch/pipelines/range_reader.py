"""What a task does: fetch the parts of its range in a thread, decode them, tell what was lost.

Why a thread: fetching waits for brokers and decoding for the processor, and compiled code leaves
Python's lock free. Rule kept: at most `AHEAD` parts wait to be decoded, and the thread ends with
the reading, also where Spark stops it early.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.damage import Behind, behind_damage
from anabranch.client.fetch import Fetched, fetch
from anabranch.client.lanes import remedy
from anabranch.client.ranges import Part, RangeLost, ReadingStalled, read_range
from anabranch.core.errors import ApiError
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.pipelines.offset_ranges import OffsetRange
from anabranch.pipelines.options import BATCHES, SourceOptions
from anabranch.pipelines.requirements import check_packages
from anabranch.pipelines.worker import leave_out_of_collections

AHEAD = 2
ASK_AGAIN_SECONDS = 0.2
"""How often a full queue looks whether the reading is over."""


class DataLoss(Exception):
    """Offsets that were to be read are gone; the text names them and the remedy."""


class ReadingFailed(Exception):
    """A range could not be read; the text names it and what to look at."""


def warn(text: str) -> None:
    """Say something in the log of the executor."""
    print(f"anabranch: {text}", file=sys.stderr, flush=True)  # noqa: T201  # Spark's log of workers


def read_range_of(options: SourceOptions, wanted: OffsetRange, schema: Any) -> Iterator[Any]:
    """The Arrow batches of one task. Raises DataLoss, CorruptBatch, ReadingFailed."""
    check_packages()
    from anabranch.pipelines.assembler import Window
    from anabranch.pipelines.decoder import RangeDecoder

    decoding = RangeDecoder(
        topic=wanted.topic,
        partition=wanted.partition,
        window=Window(wanted.start, wanted.until),
        schema=schema,
        read_committed=bool(options.reading.isolation_level),
        fail_on_corruption=options.fail_on_corruption,
        from_middle=wanted.from_middle,
    )
    rows = decoding.batches if options.shape == BATCHES else decoding.records
    with PartsAhead(options, wanted) as parts:
        yield from rows(parts)
    if decoding.left_out:
        warn(decoding.summary())
    leave_out_of_collections()


class PartsAhead:
    """The parts of a range, fetched ahead. Use it as a context manager, and iterate once."""

    def __init__(self, options: SourceOptions, wanted: OffsetRange) -> None:
        self._options = options
        self._wanted = wanted
        self._queue: queue.Queue[Part | BaseException | None] = queue.Queue(AHEAD)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anabranch-fetch", daemon=True)
        self._end_early: Callable[[], object] = _nothing

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._is_over.set()
        with suppress(RuntimeError):  # the loop has ended by itself
            self._end_early()
        self._thread.join()

    def __iter__(self) -> Iterator[Part]:
        while (each := self._queue.get()) is not None:
            if isinstance(each, BaseException):
                raise each
            yield each

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            asyncio.run(self._fetch())
        except _Over:
            return
        except BaseException as fault:
            end = fault
        try:
            self._put(end)
        except _Over:
            return

    def _put(self, each: Part | BaseException | None) -> None:
        while not self._is_over.is_set():
            try:
                self._queue.put(each, timeout=ASK_AGAIN_SECONDS)
                return
            except queue.Full:
                continue
        raise _Over

    async def _fetch(self) -> None:
        options, wanted = self._options, self._wanted
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._end_early = partial(loop.call_soon_threadsafe, task.cancel)
        cluster = Cluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            security=options.security,
            deadline_seconds=options.deadline_seconds,
        )
        try:
            await cluster.retrying(lambda: cluster.metadata([]))
            start: int | None = wanted.start
            while start is not None:
                start = await self._fetch_from(cluster, start)
        except (ApiError, ConnectionLost) as fault:
            raise ReadingFailed(
                f"{wanted.topic}-{wanted.partition}: offsets {wanted.start} to {wanted.until - 1} "
                f"could not be read from {options.bootstrap_servers}: {fault}{remedy(fault)} Run "
                "the query again when the brokers serve the partition; a stream continues from its "
                "checkpoint."
            ) from fault
        finally:
            await cluster.close()

    async def _fetch_from(self, cluster: Cluster, start: int) -> int | None:
        wanted = self._wanted
        parts = read_range(
            cluster, wanted.topic, wanted.partition, start, wanted.until,
            topic_id=wanted.topic_id, reading=self._options.reading,
        )  # fmt: skip
        try:
            async for part in parts:
                self._put(part)
        except RangeLost as lost:
            lose(self._options, str(lost), warn)
            return lost.resume_at
        except ReadingStalled as stalled:
            behind = await self._behind_damage(cluster, stalled.offset)
            if behind is None:
                raise
            if behind.first > stalled.offset:
                warn(
                    f"{wanted.topic}-{wanted.partition}: offsets {stalled.offset} to "
                    f"{behind.first - 1} were left out: the length of a batch is damaged."
                )
            return behind.resume_at
        finally:
            await parts.aclose()  # type: ignore[attr-defined]
        return None

    async def _behind_damage(self, cluster: Cluster, offset: int) -> Behind | None:
        """Where to go on behind a batch that ends the reading; None where it has to end."""
        options, wanted = self._options, self._wanted
        if options.fail_on_corruption:
            return None

        async def ask(at: int) -> Fetched:
            (answer,) = await fetch(
                cluster, wanted.topic, {wanted.partition: at},
                max_wait_ms=options.reading.wait_ms, max_bytes=1, partition_max_bytes=1,
                isolation_level=options.reading.isolation_level,
                topic_id=wanted.topic_id or ZERO_TOPIC_ID,
            )  # fmt: skip
            return answer

        return await behind_damage(ask, offset, wanted.until)


def _nothing() -> None:
    """There is nothing to end yet."""


class _Over(Exception):
    """Nobody reads any more."""


def lose(options: SourceOptions, what: str, tell: Callable[[str], None]) -> None:
    """Deal with lost offsets as the options say. Raises DataLoss unless they may be lost."""
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{what} To go on with what is there, set option('failOnDataLoss', 'false'); a stream "
            "may also start again with another checkpointLocation."
        )
    tell(what)
