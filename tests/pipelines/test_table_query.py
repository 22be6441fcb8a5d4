"""A table's stream is started again for a worker that was late, and for no other fault."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from anabranch.pipelines.table_query import MOST_LATE, TableQuery

LATE = (
    "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back"
)


class Query:
    def __init__(self, fault, progress=None):
        self._fault = fault
        self.lastProgress = progress

    def awaitTermination(self):  # noqa: N802
        if self._fault is not None:
            raise StreamingQueryException(self._fault)


def started(*faults, progress=None):
    """How often a job is started whose queries end so, one after the other, and its end."""
    queries = [Query(each, progress) for each in faults]
    query = TableQuery(lambda: queries.pop(0), lambda: False)
    try:
        assert query.awaitTermination(10)
    except StreamingQueryException as fault:
        return len(faults) - len(queries), str(fault)
    return len(faults) - len(queries), None


@pytest.mark.parametrize("late", [1, MOST_LATE])
def test_a_late_worker_is_tried_again(late):
    assert started(*[LATE] * late, None) == (late + 1, None)


def test_a_machine_that_is_too_slow_is_told():
    count, fault = started(*[LATE] * (MOST_LATE + 2))
    assert count == MOST_LATE + 1
    assert "Timed out while waiting for the Python worker" in fault


def test_late_workers_between_micro_batches_that_work_do_not_add_up():
    late = [LATE] * (MOST_LATE + 2)
    assert started(*late, None, progress={"batchId": 7}) == (len(late) + 1, None)


def test_another_fault_ends_the_job_at_once():
    count, fault = started("no such table", None)
    assert count == 1
    assert "no such table" in fault
