"""The metadata store in one SQLite file: for a node, or several processes on one machine.

What: table `log` holds encoded record batches (v2, Kafka's metadata format), `snapshot` one
checkpoint, `lease` one row, `facts` the cluster's id. Why SQLite: it is in every Python, and its
rollback journal with synchronous=FULL survives a power cut (`sqlite_file.py`); the write-ahead log
is not used, since several processes share the file. Rule kept: every statement runs in one thread
of its own, so the event loop never waits for the disk. Not here: replication; across machines the
store is PostgreSQL.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.store import (
    MARK_BYTES,
    NOBODY,
    Appended,
    Committed,
    Lease,
    Snapshot,
    StoreAway,
    StoredBatch,
    StoreEnd,
    Unknown,
    next_lease,
    refusal,
)
from anabranch.stores.metadata.restore_check import Content, check_restore
from anabranch.stores.sqlite_file import Kind, error_name, open_file, sentence, transaction

ResultT = TypeVar("ResultT")

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS log (first_offset INTEGER PRIMARY KEY, "
    "end_offset INTEGER NOT NULL, epoch INTEGER NOT NULL, payload BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "end_offset INTEGER NOT NULL, epoch INTEGER NOT NULL, payload BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS lease (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "epoch INTEGER NOT NULL, holder INTEGER NOT NULL, incarnation TEXT NOT NULL, "
    "endpoint TEXT NOT NULL, beat INTEGER NOT NULL)",
)

KIND = Kind(
    "metadata store", "metadata.store.url", frozenset(("facts", "log", "snapshot", "lease"))
)


class SqliteStore:
    """A `MetadataStore` in the file at `path`, which is made when it does not exist."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        self._connection: sqlite3.Connection | None = None
        self._appends = 0
        self.make_room: Callable[[DiskFull], bool] = lambda fault: False
        """Called on the loop when the file's volume is full; whether it is worth trying again."""

    @classmethod
    async def open(cls, path: str) -> SqliteStore:
        """Open the file and make what is missing in it. Raises StorageFault."""
        store = cls(path)
        try:
            await store._run(store._connect)
        except BaseException:
            # Also when the start was cancelled while the thread works: nothing of it stays.
            store._thread.submit(store._disconnect)
            store._thread.shutdown()
            raise
        return store

    async def cluster_id(self, proposed: str) -> str:
        return await self._run(lambda: self._cluster_id(proposed))

    async def append(
        self, lease: Lease, expected_end_offset: int, batches: list[StoredBatch]
    ) -> Appended:
        try:
            return await self._run(lambda: self._append(lease, expected_end_offset, batches))
        except StorageFault as fault:
            return Unknown(str(fault))

    async def end(self) -> StoreEnd:
        return await self._run(self._end)

    async def read(self, from_offset: int, max_bytes: int) -> list[StoredBatch]:
        return await self._run(lambda: self._read(from_offset, max_bytes))

    async def save_snapshot(self, snapshot: Snapshot, *, keep_log_from: int) -> None:
        await self._run(lambda: self._save_snapshot(snapshot, keep_log_from))

    async def load_snapshot(self) -> Snapshot | None:
        return await self._run(self._load_snapshot)

    async def lease(self) -> Lease | None:
        return await self._run(self._lease)

    async def take_lease(
        self, seen: Lease | None, holder: int, incarnation: str, endpoint: str
    ) -> Lease | None:
        return await self._run(lambda: self._take_lease(seen, holder, incarnation, endpoint))

    async def renew_lease(self, lease: Lease) -> Lease | None:
        return await self._run(lambda: self._renew_lease(lease))

    async def release_lease(self, lease: Lease) -> None:
        await self._run(lambda: self._release_lease(lease))

    async def restore(
        self, cluster_id: str, snapshot: Snapshot | None, batches: list[StoredBatch]
    ) -> None:
        await self._run(lambda: self._restore(cluster_id, snapshot, batches))

    async def close(self) -> None:
        if self._connection is not None:
            await self._run(self._disconnect)
        self._thread.shutdown()

    def abandon(self) -> None:
        """Close without a turn of the loop: see `Node.abandon`."""
        self._thread.shutdown(cancel_futures=True)
        self._disconnect()

    def statistics(self) -> dict[str, int]:
        """Transactions that appended since the store was opened."""
        return {"append_transactions": self._appends}

    async def _run(self, call: Callable[[], ResultT]) -> ResultT:
        """A transaction that met a full volume took no effect: once there is room, again."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._guard, call)
        except DiskFull as fault:
            if not self.make_room(fault):
                raise
        return await loop.run_in_executor(self._thread, self._guard, call)

    # Everything below runs in the store's thread.

    def _guard(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except sqlite3.Error as error:
            name = error_name(error)
            kind = next((FAULTS[each] for each in FAULTS if name.startswith(each)), StorageFault)
            raise kind(f"metadata store {self.path}: {sentence(error, REMEDIES)}") from error

    def _connect(self) -> None:
        connection = open_file(self.path, KIND)
        self._connection = connection
        have = connection.execute("SELECT count(*) FROM sqlite_master WHERE type='table'")
        if have.fetchone()[0] < len(SCHEMA):
            with self._transaction() as cursor:
                for statement in SCHEMA:
                    cursor.execute(statement)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StorageFault(f"metadata store {self.path} is closed")
        return self._connection

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self._open)

    def _stored_cluster_id(self) -> str | None:
        found = self._open.execute("SELECT value FROM facts WHERE name='cluster.id'").fetchone()
        return None if found is None else str(found[0])

    def _cluster_id(self, proposed: str) -> str:
        with self._transaction() as cursor:
            cursor.execute("INSERT OR IGNORE INTO facts VALUES ('cluster.id', ?)", (proposed,))
        return self._stored_cluster_id() or proposed

    def _end(self) -> StoreEnd:
        last = self._open.execute(
            "SELECT end_offset, epoch FROM log ORDER BY first_offset DESC LIMIT 1"
        ).fetchone()
        first = self._open.execute("SELECT min(first_offset) FROM log").fetchone()[0]
        if last is None:
            snapshot = self._open.execute("SELECT end_offset, epoch FROM snapshot").fetchone()
            last = snapshot or (0, 0)
            first = last[0]
        return StoreEnd(first, *last)

    def _append(
        self, lease: Lease, expected_end_offset: int, batches: list[StoredBatch]
    ) -> Appended:
        with self._transaction() as cursor:
            present, end = self._lease(), self._end()
            refused = refusal(lease, present, expected_end_offset, end.end_offset)
            if refused is not None:
                return refused
            cursor.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", batches)
        self._appends += 1
        return Committed(batches[-1].end_offset if batches else expected_end_offset)

    def _read(self, from_offset: int, max_bytes: int) -> list[StoredBatch]:
        found: list[StoredBatch] = []
        left = max_bytes
        rows = self._open.execute(
            "SELECT first_offset, end_offset, epoch, payload FROM log "
            "WHERE first_offset >= coalesce("
            "(SELECT max(first_offset) FROM log WHERE first_offset <= ?), 0) "
            "AND end_offset > ? ORDER BY first_offset",
            (from_offset, from_offset),
        )
        for row in rows:
            batch = StoredBatch(*row)
            left -= len(batch.payload)
            if found and left < 0:
                break
            found.append(batch)
        rows.close()
        return found

    def _save_snapshot(self, snapshot: Snapshot, keep_log_from: int) -> None:
        with self._transaction() as cursor:
            newer = cursor.execute(
                "SELECT 1 FROM snapshot WHERE end_offset >= ?", (snapshot.end_offset,)
            ).fetchone()
            if newer is None:
                cursor.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?)", snapshot)
                trim = min(keep_log_from, snapshot.end_offset)
                cursor.execute("DELETE FROM log WHERE end_offset <= ?", (trim,))

    def _load_snapshot(self) -> Snapshot | None:
        row = self._open.execute("SELECT end_offset, epoch, payload FROM snapshot").fetchone()
        return None if row is None else Snapshot(*row)

    def _lease(self) -> Lease | None:
        row = self._open.execute(
            "SELECT epoch, holder, incarnation, endpoint, beat FROM lease"
        ).fetchone()
        return None if row is None else Lease(*row)

    def _take_lease(
        self, seen: Lease | None, holder: int, incarnation: str, endpoint: str
    ) -> Lease | None:
        with self._transaction() as cursor:
            if self._lease() != seen:
                return None
            mark = secrets.token_hex(MARK_BYTES)
            taken = next_lease(seen, self._end().epoch, holder, incarnation, endpoint, mark)
            self._write_lease(cursor, taken)
        return taken

    def _write_lease(self, cursor: sqlite3.Connection, lease: Lease) -> None:
        cursor.execute(
            "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?, ?)",
            (lease.epoch, lease.holder, lease.incarnation, lease.endpoint, lease.beat),
        )

    def _renew_lease(self, lease: Lease) -> Lease | None:
        with self._transaction() as cursor:
            changed = cursor.execute(
                "UPDATE lease SET beat = beat + 1 WHERE epoch = ? AND holder = ? "
                "AND incarnation = ?",
                (lease.epoch, lease.holder, lease.incarnation),
            ).rowcount
        return self._lease() if changed else None

    def _release_lease(self, lease: Lease) -> None:
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE lease SET holder = ?, beat = beat + 1 WHERE epoch = ? AND incarnation = ?",
                (NOBODY, lease.epoch, lease.incarnation),
            )

    def _restore(
        self, cluster_id: str, snapshot: Snapshot | None, batches: list[StoredBatch]
    ) -> None:
        with self._transaction() as cursor:
            end = self._end()
            last = next(iter(self._read(end.end_offset - 1, 1)), None)
            content = Content(self._stored_cluster_id(), end, last)
            check_restore(self.path, "file", content, cluster_id, snapshot, batches)
            lease = self._lease()
            cursor.execute("DELETE FROM log")
            cursor.execute("DELETE FROM snapshot")
            cursor.execute("INSERT OR IGNORE INTO facts VALUES ('cluster.id', ?)", (cluster_id,))
            if snapshot is not None:
                cursor.execute("INSERT INTO snapshot VALUES (1, ?, ?, ?)", snapshot)
            cursor.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", batches)
            epoch = max(lease.epoch if lease else 0, self._end().epoch)
            self._write_lease(cursor, Lease(epoch, NOBODY, "", "", 0))


FAULTS: Mapping[str, type[StorageFault]] = {"SQLITE_FULL": DiskFull, "SQLITE_BUSY": StoreAway}
"""By the begin of SQLite's name of an error; others do not pass."""
REMEDIES = {
    "SQLITE_NOTADB": "name another file in metadata.store.url",
    "SQLITE_CORRUPT": "restore it with `anabranch metadata restore` from the node with the "
    "longest copy",
}
"""What helps beside what helps any SQLite file."""
