"""The batch coordinator's SQL on SQLite in memory: for the simulator and for tests.

What: the tables of `sqlite_tables.py` without a file, a thread or a lock; mark and clock are handed
in, so that the same calls have the same answers. Why: what is rehearsed is the SQL that runs.
`listen` takes a function that gets the changes of each transaction once it is committed. Not here:
durability, waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anabranch.core.diskless.commit import ProducerKey
from anabranch.core.diskless.rows import Change, LogKey, Run
from anabranch.stores.coordinator.migrations import FACTS, SQLITE, first_facts, steps_from
from anabranch.stores.coordinator.sql_tables import OF_LOG, RUNS
from anabranch.stores.coordinator.sqlite_tables import SqliteTables

ALL = 1 << 62
Listener = Callable[[list[Change]], None]


class SqliteInMemory(SqliteTables):
    """All tables, empty at first. `clock` gives milliseconds since 1970."""

    def __init__(self, cluster_id: str, clock: Callable[[], int], *, mark: str = "memory") -> None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute(FACTS)
        for statement in steps_from(0, SQLITE, "in memory"):
            connection.execute(statement)
        facts = first_facts({}, cluster_id, mark)
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        super().__init__(connection, cluster_id, mark, clock)
        self._listeners: list[Listener] = []

    def __del__(self) -> None:
        """Nothing else closes a simulated coordinator."""
        self._on.close()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with the changes of each transaction; gives what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Listeners are called when it is committed."""
        self.told = []
        with super().transaction():
            yield
        told, self.told = self.told, []
        if told:
            for listener in tuple(self._listeners):
                listener(told)

    def tell(self, changes: Sequence[Change]) -> None:
        """Keep them until the transaction is committed."""
        self.told += changes

    def by_time(self, key: LogKey, timestamp: int, first: int = 0) -> Run | None:
        """See `Coordinator.by_time`."""
        return self.some_by_time(key, timestamp, first, ALL)[0]

    def newest(self, key: LogKey) -> Run | None:
        """See `Coordinator.newest`."""
        return self.some_newest(key, 0, ALL)[0]

    # What only simulator and tests do.

    def runs(self, key: LogKey) -> list[Run]:
        """All rows of a partition, in order."""
        return [Run(key, *row) for row in self.rows(f"{RUNS} ORDER BY base_offset", key)]

    def set_back(self, each: ProducerKey, by_ms: int) -> None:
        """A producer, if it is known, wrote last so much earlier."""
        self.do(
            f"UPDATE producers SET written_ms = written_ms - ? WHERE {OF_LOG} AND producer_id = ?",
            (by_ms, *each.key, each.producer_id),
        )
