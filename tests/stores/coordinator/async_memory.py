"""The coordinator in memory with asynchronous calls, for tests.

What: a front of `SqliteInMemory`; several fronts may share one, as brokers share a database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.rows import Change
from anabranch.stores.coordinator.front import Front, Lane, Tables, wall_clock_ms
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

ResultT = TypeVar("ResultT")


class AsyncMemoryCoordinator(Front):
    """A `Coordinator` over shared tables; each call gives way to the loop once."""

    def __init__(self, tables: SqliteInMemory | None = None, cluster_id: str = "memory") -> None:
        super().__init__()
        self.tables = tables or SqliteInMemory(cluster_id, wall_clock_ms)
        self._closed = False

    async def make(self, lane: Lane, call: Callable[[Tables], ResultT]) -> ResultT:
        """At once, after a turn of the loop."""
        await asyncio.sleep(0)
        if self._closed:
            raise CoordinatorAway("the coordinator in memory is closed")
        return call(self.tables)

    async def changes(self) -> AsyncIterator[list[Change]]:
        """See `Coordinator.changes`."""
        heard: asyncio.Queue[list[Change]] = asyncio.Queue()
        unlisten = self.tables.listen(heard.put_nowait)
        try:
            yield []
            while True:
                yield await heard.get()
        finally:
            unlisten()

    async def close(self) -> None:
        """Every later call raises."""
        self._closed = True
