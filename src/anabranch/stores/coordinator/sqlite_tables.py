"""The coordinator's transactions in SQLite.

What: `SqlTables` on one connection, in the worker's thread and under the lock of the file, so that
no other process is between two statements and no row needs a lock. What a call moved stands in
`changes`, the newest packets, as part of its transaction. The clock is this machine's: SQLite has
no other, and all processes of one file share the machine. Not here: the lock, the thread, faults
(`sqlite.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.core.diskless.commit import ObjectRow, Producer, ProducerKey, producer_keys
from anabranch.core.diskless.rows import (
    MOST_RUNS_FOUND,
    Change,
    Commit,
    Found,
    LogKey,
    LogState,
    Run,
    Wanted,
)
from anabranch.stores.coordinator.codec import pack_changes, unpack_changes, unpack_written
from anabranch.stores.coordinator.sql_tables import (
    COMMITTED,
    OBJECT,
    OF_LOG,
    RUNS,
    SqlTables,
    object_row,
)
from anabranch.stores.sqlite_file import transaction

CHANGES_KEPT = 1000
"""Packets of changes that a listener may be behind: a second or so of commits."""
TRIMMED_EVERY = 50
"""Packets between two removals of old ones, which touch pages of their own."""
CHANGE_BYTES = 1 << 20


class SqliteTables(SqlTables):
    """`Tables` on a connection whose schema is the newest."""

    def __init__(
        self, connection: sqlite3.Connection, cluster_id: str, mark: str, clock: Callable[[], int]
    ) -> None:
        super().__init__(cluster_id, mark)
        self._on, self._clock = connection, clock
        self.told: list[Change] = []
        """What the calls since it was emptied have told."""
        self.newest_packet = 0
        """The number of the newest packet that was written here."""

    # How statements are made.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Here and below."""
        with transaction(self._on):
            yield

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._on.execute(query, values).fetchall()

    def do(self, query: str, values: Sequence[Any] = ()) -> None:
        self._on.execute(query, values)

    def count(self, query: str, values: Sequence[Any] = ()) -> int:
        return self._on.execute(query, values).rowcount

    def many(self, query: str, values: Iterable[Sequence[Any]]) -> None:
        self._on.executemany(query, values)

    def now_ms(self) -> int:
        """By this machine's clock."""
        return self._clock()

    def tell(self, changes: Sequence[Change]) -> None:
        """Write packets of changes, and now and then remove old ones."""
        self.told += changes
        for body in pack_changes(changes, CHANGE_BYTES):
            cursor = self._on.execute("INSERT INTO changes (body) VALUES (?)", (body,))
            self.newest_packet = last = cursor.lastrowid or 0
            if last % TRIMMED_EVERY == 0:
                self.do("DELETE FROM changes WHERE sequence <= ?", (last - CHANGES_KEPT,))

    def next_ids(self, count: int) -> list[int]:
        """Numbers after the greatest that there ever was; a row is to be inserted for each."""
        first = self.last_id() + 1
        return list(range(first, first + count))

    def last_id(self) -> int:
        """As SQLite keeps it for AUTOINCREMENT."""
        last = self.rows("SELECT seq FROM sqlite_sequence WHERE name = 'wal_objects'")
        return int(last[0][0]) if last else 0

    def skip_ids(self, last: int) -> None:
        self.do("DELETE FROM sqlite_sequence WHERE name = 'wal_objects'")
        self.do("INSERT INTO sqlite_sequence (name, seq) VALUES ('wal_objects', ?)", (last,))

    # Many rows at once: here one after another, since no round trip is saved.

    def locked_logs(self, keys: Sequence[LogKey]) -> dict[LogKey, LogState]:
        """Those partitions that there are."""
        found = zip(keys, self.states(keys), strict=True)
        return {key: state for key, state in found if state is not None}

    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        query = (
            "SELECT log_start_offset, high_watermark, byte_size, tiered_end_offset, leader_epoch "
            f"FROM logs WHERE {OF_LOG}"
        )
        found = (self._on.execute(query, key).fetchone() for key in keys)
        return [None if row is None else LogState(*row) for row in found]

    def known(self, object_ids: Sequence[int]) -> set[str]:
        query = "SELECT object_key FROM wal_objects WHERE object_id = ? AND state <> 4"
        return {key for number in object_ids for (key,) in self.rows(query, (number,))}

    def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        return [
            self._find(each, state)
            for each, state in zip(wanted, self.states([each.key for each in wanted]), strict=True)
        ]

    def to_commit(
        self, commit: Commit
    ) -> tuple[
        ObjectRow | None, int | None, dict[LogKey, LogState], dict[ProducerKey, Producer], int
    ]:
        """What `decide` takes."""
        found = self.rows(
            f"SELECT {OBJECT} FROM wal_objects WHERE object_id = ?", (commit.object_id,)
        )
        return (
            object_row(found[0]) if found else None,
            self.broker_epoch(commit.broker_id),
            self.locked_logs(sorted({batch.key for batch in commit.batches})),
            self._producers(producer_keys(commit.batches)),
            self.now_ms(),
        )

    def write_commit(
        self,
        held: Sequence[Any],
        logs: Sequence[tuple[Any, ...]],
        runs: Sequence[tuple[Any, ...]],
        producers: Sequence[tuple[Any, ...]],
        changes: Sequence[Change],
    ) -> None:
        """What a commit writes and tells."""
        self.do("UPDATE commits SET last_number = last_number + 1")
        self.do(COMMITTED, held)
        self.many(f"UPDATE logs SET high_watermark = ?, byte_size = ? WHERE {OF_LOG}", logs)
        self.many(
            "INSERT INTO runs (topic_id, partition, base_offset, end_offset, object_id, "
            "byte_offset, byte_size, max_timestamp, timestamp_type) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            runs,
        )
        self.many("INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?, ?, ?)", producers)
        self.tell(changes)

    # Changes.

    def last_change(self) -> int:
        """The number of the newest packet of changes."""
        last = self.rows("SELECT seq FROM sqlite_sequence WHERE name = 'changes'")
        return int(last[0][0]) if last else 0

    def changes_after(self, sequence: int, limit: int) -> list[tuple[int, list[Change]]]:
        """Packets after a number; those that are not kept any more are missing in front."""
        rows = self.rows(
            "SELECT sequence, body FROM changes WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (sequence, limit),
        )
        return [(number, unpack_changes(body)) for number, body in rows]

    def _producers(self, wanted: Iterable[ProducerKey]) -> dict[ProducerKey, Producer]:
        query = f"SELECT producer_epoch, written FROM producers WHERE {OF_LOG} AND producer_id = ?"
        found = ((each, self.rows(query, (*each.key, each.producer_id))) for each in sorted(wanted))
        return {
            each: Producer(rows[0][0], unpack_written(rows[0][1])) for each, rows in found if rows
        }

    def _find(self, wanted: Wanted, state: LogState | None) -> Found:
        key, offset, most_bytes = wanted
        if state is None or not state.first_run_offset <= offset < state.high_watermark:
            return Found(key, state)
        rows = self._on.execute(
            f"{RUNS} AND base_offset >= (SELECT coalesce(max(base_offset), 0) FROM runs "
            f"WHERE {OF_LOG} AND base_offset <= ?) AND end_offset > ? "
            f"ORDER BY base_offset LIMIT {MOST_RUNS_FOUND}",
            (*key, *key, offset, offset),
        )
        taken: list[Run] = []
        for row in rows:
            run = Run(key, *row)
            most_bytes -= run.byte_size
            if taken and most_bytes < 0:
                break
            taken.append(run)
        return Found(key, state, tuple(taken))
