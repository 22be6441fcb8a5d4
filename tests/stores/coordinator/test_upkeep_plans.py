"""Whether what brokers do as time passes finds its rows without looking at all the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from coordinator_kit import CLUSTER, DELTA, RIVER, TOPICS, batch, commit, make_river, prepare

from anabranch.core.tiering.plan import Eligible
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.coordinator.tiering_front import TieringFront

STEPS: dict[str, Callable[[SqliteCoordinator], Awaitable[Any]]] = {
    "mark_expired": lambda on: on.mark_expired(9),
    "forget_producers": lambda on: on.forget_producers(0, 9),
    "to_delete": lambda on: on.to_delete(0, 9),
    "count_to_delete": lambda on: on.count_to_delete(0, 9),
    "tiering lags": lambda on: TieringFront(on).lags([Eligible(RIVER, 0, 9, 9)], 9),
    "expire": lambda on: on.expire(RIVER, older_than_ms=9, most_bytes=9, most_runs=9),
}

BOUNDED = (
    "SCAN deleted_topics USING INDEX deleted_topics_unswept", "SCAN waiting", "SCAN sqlite_sequence",
)  # fmt: skip
"""Topics that are due, one at a time; what was limited before; a row for each table."""


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[SqliteCoordinator]:
    """One of which each kind of row is due."""
    clock = [0]
    on = await SqliteCoordinator.open(
        str(tmp_path / "diskless.db"), CLUSTER, clock=lambda: clock[0]
    )
    await make_river(on)
    for key in (RIVER, DELTA):
        await commit(on, batch(key, producer=4, sequence=0))
    await prepare(on)
    await on.delete_topics(1, [TOPICS[1]])
    clock[0] = 1 << 40
    yield on
    await on.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_looks_at_the_rows_that_it_takes(
    step: str, coordinator: SqliteCoordinator
) -> None:
    """A backlog of millions makes no step longer: none scans a table, or sorts what is due."""
    on = coordinator._connection
    assert on is not None
    made: list[str] = []
    on.set_trace_callback(made.append)
    await STEPS[step](coordinator)
    on.set_trace_callback(None)
    queries = [each for each in made if each.startswith(("SELECT", "UPDATE", "DELETE"))]
    assert queries
    for query in queries:
        for row in on.execute(f"EXPLAIN QUERY PLAN {query}"):
            plan = row[3]
            is_bounded = "TEMP B-TREE" not in plan and not plan.startswith("SCAN")
            assert is_bounded or plan.startswith(BOUNDED), (query, plan)
