"""A table's stream, started again where that is all it needs: for new fields, or a late worker.

Why: a query of Spark's has one schema from its start to its end. A micro-batch that brings new
fields adds their columns to the table and fails without adding a row (table_sink.py); the query is
started again from its checkpoint, parses by the table's new schema, and runs that micro-batch once
more. And Spark gives a query up whose Python worker does not connect within ten seconds, which no
setting changes, though a busy machine may need longer. Rule kept: a query that fails for any other
reason stays failed, and tells why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.pipelines.spark_faults import NO_WORKER

LOOK_SECONDS = 0.05
"""Between two looks whether a query that failed was started again."""
MOST_LATE = 3
"""Late workers without a micro-batch between them that are tried again: a machine that is too slow
is told soon."""


class TableQuery:
    """What `keep_table` gives: the part of Spark's StreamingQuery that outlives a new start.

    `begin` starts a query, and `has_grown` says, after a query has failed, whether the table has
    fields that the query did not know.
    """

    def __init__(self, begin: Callable[[], StreamingQuery], has_grown: Callable[[], bool]) -> None:
        self._begin = begin
        self._has_grown = has_grown
        self._lock = threading.Lock()
        self._is_stopped = False
        self._fault: Exception | None = None
        self._late = 0
        self._ended = threading.Event()
        self._query = begin()
        threading.Thread(target=self._keep, name="anabranch-table", daemon=True).start()

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the stream runs, or is about to be started again."""
        return not self._ended.is_set()

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """The progress of the last micro-batch; None before the first."""
        return self._query.lastProgress

    @property
    def status(self) -> Any:
        """What the stream does at the moment, as Spark tells it."""
        return self._query.status

    def exception(self) -> Exception | None:
        """Why the stream failed; None while it runs, and when it ended as it should."""
        return self._fault

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait for the end; False when it does not come in `timeout` seconds. Raises its fault."""
        has_ended = self._ended.wait(timeout)
        if self._fault is not None:
            raise self._fault
        return has_ended

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything is in the table that is in the topic now. Raises the fault."""
        while True:
            query = self._query
            try:
                query.processAllAvailable()
                return
            except StreamingQueryException:
                while self._query is query and not self._ended.wait(LOOK_SECONDS):
                    pass
                if self._fault is not None:
                    raise self._fault from None

    def stop(self) -> None:
        """End the stream after what it does now; the checkpoint says how far it is."""
        with self._lock:
            self._is_stopped = True
            self._query.stop()
        self._ended.wait()

    def _keep(self) -> None:
        try:
            while not self._ends():
                pass
        except Exception as fault:  # shown by awaitTermination
            self._fault = fault
        finally:
            self._ended.set()

    def _ends(self) -> bool:
        """Wait for the query; whether it ended for good. Raises its fault."""
        try:
            self._query.awaitTermination()
            return True
        except StreamingQueryException as fault:
            with self._lock:
                if self._is_stopped:
                    return True
                if not self._has_grown() and not self._was_late(fault):
                    raise
                self._query = self._begin()
        return False

    def _was_late(self, fault: StreamingQueryException) -> bool:
        """Whether a worker was late, and may be tried again."""
        if NO_WORKER.search(str(fault)) is None:
            return False
        if self._query.lastProgress is not None:  # a micro-batch has worked since the last start
            self._late = 0
        self._late += 1
        return self._late <= MOST_LATE
