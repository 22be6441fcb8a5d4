"""The metadata store in a PostgreSQL database: for controllers on several machines.

What: the tables of `sqlite.py` in the schema `anabranch` of the database that the URL names. Rule
kept: whatever changes something locks one row first (`facts`, `schema.version`), so all writers
stand in one line and what they read next is what was committed last; one that is cut off while it
holds the row is let go by the server as soon as its call would have ended here. A snapshot may take
minutes: it is written, and read unless it is small, over a connection of its own, and written
without that row; only the log is trimmed with it. A commit whose answer did not come is `Unknown`.
Passwords belong into PGPASSWORD or a password file; no error shows one. LISTEN is not used: the
store's contract has no call that waits, and a lost connection would lose a notice, so a waiting
controller would have to look at the lease all the same. Not here: replication of PostgreSQL; a
server that would lose commits at a failover is refused where that can be seen.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg

from anabranch.core.errors import StorageFault
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
from anabranch.stores.metadata.postgres_schema import check_server, make_schema, make_session
from anabranch.stores.metadata.restore_check import Content, check_restore
from anabranch.stores.postgres_server import (
    LOST_TRACK,
    is_away,
    lost_track,
    one_line,
    shown_place,
)

ResultT = TypeVar("ResultT")
Connection: TypeAlias = psycopg.AsyncConnection[Any]

CONNECT_TIMEOUT_S = 5
CALL_TIMEOUT_S = 5.0
"""Shorter than a lease: a controller whose store is silent resigns before another takes over."""
LEAST_BYTES_A_SECOND = 1 << 20
"""A snapshot gets this much more time for its size: a slower way to the database is none."""
INSERT_BATCH = "INSERT INTO anabranch.log VALUES (%s, %s, %s, %s)"


class PostgresStore:
    """A `MetadataStore` in the database at `url`; one connection, replaced when it is lost.

    `more_s` is how much longer than CALL_TIMEOUT_S a call may take.
    """

    def __init__(self, url: str, more_s: float = 0.0) -> None:
        self._url = url
        self._more_s = more_s
        self.name = shown_place(url, "metadata.store.url")
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._apart: set[PostgresStore] = set()
        self._closed = False
        self._appends = 0

    @classmethod
    async def open(cls, url: str) -> PostgresStore:
        """Connect and make what is missing in the database. Raises StorageFault."""
        store = cls(url)
        try:
            await store._run(store._prepare)
        except BaseException:
            await store.close()
            raise
        return store

    async def cluster_id(self, proposed: str) -> str:
        return await self._run(lambda on: _cluster_id(on, proposed))

    async def append(
        self, lease: Lease, expected_end_offset: int, batches: list[StoredBatch]
    ) -> Appended:
        try:
            answer = await self._run(lambda on: _append(on, lease, expected_end_offset, batches))
        except StorageFault as fault:
            return Unknown(str(fault))
        self._appends += isinstance(answer, Committed)
        return answer

    async def end(self) -> StoreEnd:
        return await self._run(_end, again=True)

    async def read(self, from_offset: int, max_bytes: int) -> list[StoredBatch]:
        return await self._run(lambda on: _read(on, from_offset, max_bytes), again=True)

    async def save_snapshot(self, snapshot: Snapshot, *, keep_log_from: int) -> None:
        size_bytes = len(snapshot.payload)
        if await self._run_apart(lambda on: _replace_snapshot(on, snapshot), size_bytes):
            await self._run(lambda on: _trim(on, keep_log_from), again=True)

    async def load_snapshot(self) -> Snapshot | None:
        size_bytes = await self._run(_snapshot_bytes, again=True)
        if size_bytes <= LEAST_BYTES_A_SECOND:  # it does not take long
            return await self._run(_load_snapshot, again=True)
        return await self._run_apart(_load_snapshot, size_bytes, again=True)

    async def lease(self) -> Lease | None:
        return await self._run(_lease, again=True)

    async def take_lease(
        self, seen: Lease | None, holder: int, incarnation: str, endpoint: str
    ) -> Lease | None:
        return await self._run(lambda on: _take_lease(on, seen, holder, incarnation, endpoint))

    async def renew_lease(self, lease: Lease) -> Lease | None:
        return await self._run(lambda on: _renew_lease(on, lease), again=True)

    async def release_lease(self, lease: Lease) -> None:
        await self._run(lambda on: _release_lease(on, lease))

    async def restore(
        self, cluster_id: str, snapshot: Snapshot | None, batches: list[StoredBatch]
    ) -> None:
        size_bytes = sum(len(each.payload) for each in (snapshot, *batches) if each is not None)
        await self._run_apart(
            lambda on: self._restore(on, cluster_id, snapshot, batches), size_bytes
        )

    async def close(self) -> None:
        ending = (self, *self._apart)
        for each in ending:
            each._closed = True
        for each in ending:
            await each._drop()

    def abandon(self) -> None:
        """Close without a turn of the loop: see `Node.abandon`."""
        for each in (self, *self._apart):
            each._closed = True
            if each._connection is not None:
                each._connection.pgconn.finish()

    def statistics(self) -> dict[str, int]:
        """Transactions that appended since the store was opened."""
        return {"append_transactions": self._appends}

    async def _run(
        self, call: Callable[[Connection], Awaitable[ResultT]], *, again: bool = False
    ) -> ResultT:
        """One call at a time; `again` says that a second attempt does no harm."""
        async with self._turn:
            try:
                try:
                    return await self._attempt(call)
                except psycopg.OperationalError:
                    if not again:
                        raise
                    return await self._attempt(call)
            except psycopg.Error as error:
                kind = StoreAway if is_away(error) else StorageFault
                raise kind(f"metadata store {self.name}: {one_line(error)}") from error
            except TimeoutError as error:
                why = f"no answer within {CALL_TIMEOUT_S + self._more_s:.0f} s"
                raise StoreAway(f"metadata store {self.name}: {why}") from error

    async def _run_apart(
        self, call: Callable[[Connection], Awaitable[ResultT]], size_bytes: int, *,
        again: bool = False,
    ) -> ResultT:  # fmt: skip
        """A call that moves so many bytes, over a connection of its own: the lease and appends do
        not wait for it."""
        if self._closed:
            raise self._fault("it is closed")
        other = PostgresStore(self._url, size_bytes / LEAST_BYTES_A_SECOND)
        self._apart.add(other)
        try:
            return await other._run(call, again=again)
        finally:
            self._apart.discard(other)
            await other.close()

    async def _attempt(self, call: Callable[[Connection], Awaitable[ResultT]]) -> ResultT:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S + self._more_s):
                return await call(await self._open())
        except StorageFault:
            raise
        except BaseException as error:
            await self._drop()  # also when cancelled: what the connection would say next is lost
            if lost_track(error):
                raise psycopg.OperationalError(LOST_TRACK) from error
            raise

    async def _open(self) -> Connection:
        if self._closed:
            raise self._fault("it is closed")
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
            try:
                if self._closed:
                    raise self._fault("it is closed")
                await check_server(self._connection, self.name)
                await make_session(self._connection, CALL_TIMEOUT_S)
            except StorageFault:
                await self._drop()  # else the next call would use what was refused
                raise
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _prepare(self, on: Connection) -> None:
        await make_schema(on, self.name)

    def _fault(self, why: str) -> StorageFault:
        return StorageFault(f"metadata store {self.name}: {why}")

    async def _restore(
        self,
        on: Connection,
        cluster_id: str,
        snapshot: Snapshot | None,
        batches: list[StoredBatch],
    ) -> None:
        async with _transaction(on):
            end = await _end(on)
            last = next(iter(await _read(on, end.end_offset - 1, 1)), None)
            content = Content(await _stored_cluster_id(on), end, last)
            check_restore(self.name, "database", content, cluster_id, snapshot, batches)
            lease = await _lease(on)
            await on.execute("DELETE FROM anabranch.log")
            await on.execute("DELETE FROM anabranch.snapshot")
            await _propose_cluster_id(on, cluster_id)
            if snapshot is not None:
                await on.execute("INSERT INTO anabranch.snapshot VALUES (1, %s, %s, %s)", snapshot)
            await on.cursor().executemany(INSERT_BATCH, batches)
            epoch = max(lease.epoch if lease else 0, (await _end(on)).epoch)
            await _write_lease(on, Lease(epoch, NOBODY, "", "", 0))


@asynccontextmanager
async def _transaction(on: Connection) -> AsyncIterator[None]:
    async with on.transaction():
        await on.execute("SELECT 1 FROM anabranch.facts WHERE name = 'schema.version' FOR UPDATE")
        yield


async def _row(on: Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    cursor = await on.execute(query.encode(), values, binary=True)
    return await cursor.fetchone()


async def _stored_cluster_id(on: Connection) -> str | None:
    found = await _row(on, "SELECT value FROM anabranch.facts WHERE name = 'cluster.id'")
    return None if found is None else str(found[0])


async def _propose_cluster_id(on: Connection, proposed: str) -> None:
    await on.execute(
        "INSERT INTO anabranch.facts VALUES ('cluster.id', %s) ON CONFLICT DO NOTHING", (proposed,)
    )


async def _cluster_id(on: Connection, proposed: str) -> str:
    async with _transaction(on):
        await _propose_cluster_id(on, proposed)
    return await _stored_cluster_id(on) or proposed


async def _end(on: Connection) -> StoreEnd:
    """One statement, hence one view: between two of them the log could be trimmed."""
    row = await _row(
        on,
        "SELECT (SELECT min(first_offset) FROM anabranch.log), last.end_offset, last.epoch "
        "FROM ((SELECT end_offset, epoch, 1 AS rank FROM anabranch.log "
        "ORDER BY first_offset DESC LIMIT 1) UNION ALL "
        "(SELECT end_offset, epoch, 2 FROM anabranch.snapshot)) AS last ORDER BY rank LIMIT 1",
    )
    first, end_offset, epoch = row or (0, 0, 0)
    return StoreEnd(end_offset if first is None else first, end_offset, epoch)


async def _append(
    on: Connection, lease: Lease, expected_end_offset: int, batches: list[StoredBatch]
) -> Appended:
    async with _transaction(on):
        present, end = await _lease(on), await _end(on)
        refused = refusal(lease, present, expected_end_offset, end.end_offset)
        if refused is not None:
            return refused
        await on.cursor().executemany(INSERT_BATCH, batches)
    return Committed(batches[-1].end_offset if batches else expected_end_offset)


async def _read(on: Connection, from_offset: int, max_bytes: int) -> list[StoredBatch]:
    """The sum of lengths stops the server from sending what would not be taken."""
    cursor = await on.execute(
        "SELECT first_offset, end_offset, epoch, payload FROM ("
        "SELECT *, sum(length(payload)) OVER (ORDER BY first_offset) AS bytes, "
        "row_number() OVER (ORDER BY first_offset) AS number "
        "FROM anabranch.log WHERE end_offset > %s) AS wanted "
        "WHERE bytes <= %s OR number = 1 ORDER BY first_offset",
        (from_offset, max_bytes),
        binary=True,
    )
    return [StoredBatch(*row) for row in await cursor.fetchall()]


async def _replace_snapshot(on: Connection, snapshot: Snapshot) -> bool:
    """One statement, which locks the snapshot alone; whether it is newer than the stored one."""
    cursor = await on.execute(
        "INSERT INTO anabranch.snapshot AS stored VALUES (1, %s, %s, %s) ON CONFLICT (one) "
        "DO UPDATE SET end_offset = excluded.end_offset, epoch = excluded.epoch, "
        "payload = excluded.payload WHERE stored.end_offset < excluded.end_offset",
        snapshot,
    )
    return cursor.rowcount == 1


async def _trim(on: Connection, keep_log_from: int) -> None:
    """As far as the snapshot goes that is there by now: a restore may have put in another."""
    async with _transaction(on):
        await on.execute(
            "DELETE FROM anabranch.log WHERE end_offset <= %s "
            "AND end_offset <= (SELECT end_offset FROM anabranch.snapshot)",
            (keep_log_from,),
        )


async def _snapshot_bytes(on: Connection) -> int:
    row = await _row(on, "SELECT octet_length(payload) FROM anabranch.snapshot")
    return 0 if row is None else int(row[0])


async def _load_snapshot(on: Connection) -> Snapshot | None:
    row = await _row(on, "SELECT end_offset, epoch, payload FROM anabranch.snapshot")
    return None if row is None else Snapshot(*row)


async def _lease(on: Connection) -> Lease | None:
    row = await _row(on, "SELECT epoch, holder, incarnation, endpoint, beat FROM anabranch.lease")
    return None if row is None else Lease(*row)


async def _take_lease(
    on: Connection, seen: Lease | None, holder: int, incarnation: str, endpoint: str
) -> Lease | None:
    async with _transaction(on):
        if await _lease(on) != seen:
            return None
        mark, last_epoch = secrets.token_hex(MARK_BYTES), (await _end(on)).epoch
        taken = next_lease(seen, last_epoch, holder, incarnation, endpoint, mark)
        await _write_lease(on, taken)
    return taken


async def _write_lease(on: Connection, lease: Lease) -> None:
    await on.execute("DELETE FROM anabranch.lease")
    await on.execute(
        "INSERT INTO anabranch.lease VALUES (1, %s, %s, %s, %s, %s)",
        (lease.epoch, lease.holder, lease.incarnation, lease.endpoint, lease.beat),
    )


async def _renew_lease(on: Connection, lease: Lease) -> Lease | None:
    async with _transaction(on):
        row = await _row(
            on,
            "UPDATE anabranch.lease SET beat = beat + 1 WHERE epoch = %s AND holder = %s "
            "AND incarnation = %s RETURNING epoch, holder, incarnation, endpoint, beat",
            (lease.epoch, lease.holder, lease.incarnation),
        )
    return None if row is None else Lease(*row)


async def _release_lease(on: Connection, lease: Lease) -> None:
    async with _transaction(on):
        await on.execute(
            "UPDATE anabranch.lease SET holder = %s, beat = beat + 1 "
            "WHERE epoch = %s AND incarnation = %s",
            (NOBODY, lease.epoch, lease.incarnation),
        )
