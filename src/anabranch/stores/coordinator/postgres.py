"""The batch coordinator in a PostgreSQL database: for brokers on several machines.

What: the tables of `migrations.py` in the schema `anabranch_diskless` of the database that the URL
names; a thread and a connection for each lane, made when it is first used and anew when it was
lost; LISTEN on a connection of its own. Rules kept: only what the server
rolled back to let others on (SQLSTATE 40001, 40P01) is tried again here; a connection that is lost
raises CoordinatorAway, since what it was told last may have been done; one that is silent is cut
off; a connection that is made anew is used only once the database behind it, of another server
perhaps, knows what this node knows. Passwords belong into PGPASSWORD or a password file; no error
shows one. Not here: SQL (`postgres_tables.py`); replication of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.last_commits import KnownCommits
from anabranch.core.diskless.rows import Change
from anabranch.core.errors import StorageFault
from anabranch.stores.coordinator.front import LOAD_TIMEOUT_S, Front, Lane, Tables
from anabranch.stores.coordinator.migrations import (
    FACTS,
    MARK_BYTES,
    NOT_THERE,
    POSTGRES,
    check_cluster,
    first_facts,
    steps_from,
)
from anabranch.stores.coordinator.postgres_tables import CHANNEL, Connection, PostgresTables, heard
from anabranch.stores.coordinator.worker import Worker
from anabranch.stores.postgres_server import (
    COMMIT_TO_DISK,
    LOST_TRACK,
    SERVER_FACTS,
    check_facts,
    is_away,
    lost_track,
    one_line,
    session_settings,
    shown_place,
    with_remedy,
)

ResultT = TypeVar("ResultT")

SETTING = "diskless.coordinator.url"
SCHEMA = "anabranch_diskless"
MAKING_LOCK = 0x616E6163
"""The advisory lock of whoever makes or migrates the tables: the letters "anac"."""
CONNECT_TIMEOUT_S = 5
CALL_TIMEOUT_S = 10.0
QUIET_S = 5.0
"""A listener that has heard nothing for so long asks whether the server is still there."""
PAYLOAD_SHOWN = 40
"""Characters of a notification that a message shows: one of 8 kB would fill the log."""
TRIES = 3
ROLLED_BACK = ("40001", "40P01")
PAUSE_S = 0.05


class PostgresCoordinator(Front):
    """A `Coordinator` in the database at `url`."""

    def __init__(self, url: str, cluster_id: str, *, makes: bool = True) -> None:
        super().__init__()
        self._url, self._cluster_id, self._makes = url, cluster_id, makes
        self.name = shown_place(url, SETTING)
        self._lanes: dict[Lane, _Lane] = {}
        self._closed = False

    @classmethod
    async def open(cls, url: str, cluster_id: str, *, makes: bool = True) -> PostgresCoordinator:
        """Connect, make (if it `makes` any) or migrate the tables. Raises StorageFault."""
        coordinator = cls(url, cluster_id, makes=makes)
        try:
            await coordinator.call(Lane.UPKEEP, lambda tables: None)
        except BaseException:
            await coordinator.close()
            raise
        return coordinator

    async def make(self, lane: Lane, call: Callable[[Tables], ResultT]) -> ResultT:
        """In the thread of its lane."""
        if self._closed:
            raise CoordinatorAway(f"coordinator {self.name} is closed")
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(
                self._url, self.name, self._cluster_id, lane, self.known, makes=self._makes
            )
        return await self._lanes[lane].run(call)

    async def changes(self) -> AsyncIterator[list[Change]]:
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
            async with connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                yield []
                while True:
                    async for notice in connection.notifies(timeout=QUIET_S):
                        told = self._read(notice.payload)
                        self.known.heard(told)
                        yield told
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        await connection.execute("SELECT 1")
        except (psycopg.Error, TimeoutError) as error:
            raise CoordinatorAway(
                f"coordinator {self.name}: the connection that listens was lost: {one_line(error)}"
            ) from error

    def _read(self, payload: str) -> list[Change]:
        try:
            return heard(payload)
        except (ValueError, struct.error):  # perhaps ours, of a newer version: its changes count
            raise CoordinatorAway(
                f"coordinator {self.name}: a notification on channel {CHANNEL} is not Anabranch's, "
                f"or of another version: {payload[:PAYLOAD_SHOWN]!r}; if another program notifies "
                "this channel, have it use another one"
            ) from None

    async def close(self) -> None:
        """Close the connections, each once what is under way on it is done."""
        if self._closed:
            return
        self._closed = True
        for lane in self._lanes.values():
            await lane.close()


class _Lane:
    """A thread with a connection."""

    def __init__(
        self, url: str, name: str, cluster_id: str, lane: Lane, known: KnownCommits, *, makes: bool
    ) -> None:
        self._makes = makes
        self._url, self._name, self._cluster_id, self._known = url, name, cluster_id, known
        self._may_repeat, self._is_load = lane is Lane.READ, lane is Lane.LOAD
        self._tables: PostgresTables | None = None
        self._was_lost = False
        """In the call under way, whose error may then be over with the next connection."""
        self._worker = Worker(f"diskless-{lane.value}")

    async def run(self, call: Callable[[Tables], ResultT]) -> ResultT:
        """A call in the thread; one that takes too long is cut off."""
        try:
            timeout_s = LOAD_TIMEOUT_S if self._is_load else CALL_TIMEOUT_S
            return await self._worker.run(lambda: self._guard(call), timeout_s, self._cut)
        except TimeoutError:
            raise CoordinatorAway(
                f"coordinator {self._name}: no answer within {CALL_TIMEOUT_S:g} s"
            ) from None

    async def close(self) -> None:
        """Close the connection after what is under way."""
        with suppress(TimeoutError):
            await self._worker.run(self._drop, CALL_TIMEOUT_S)
        self._worker.end()

    def _cut(self) -> None:
        """Have the thread's wait for the server end: the connection is its own to close."""
        tables = self._tables
        with suppress(OSError, psycopg.Error):
            if tables is not None:
                with socket.socket(fileno=os.dup(tables.connection.fileno())) as same:
                    same.shutdown(socket.SHUT_RDWR)

    # Everything below runs in the lane's thread.

    def _guard(self, call: Callable[[Tables], ResultT]) -> ResultT:
        self._was_lost = False
        try:
            return self._repeat(call)
        except psycopg.Error as error:
            kind = CoordinatorAway if is_away(error) or self._was_lost else StorageFault
            raise kind(f"coordinator {self._name}: {with_remedy(error, SETTING)}") from error

    def _repeat(self, call: Callable[[Tables], ResultT]) -> ResultT:
        tries = 0
        while True:
            tries += 1
            try:
                return call(self._open())
            except psycopg.OperationalError as error:
                if tries == TRIES or not (self._may_repeat or error.sqlstate in ROLLED_BACK):
                    raise
                time.sleep(PAUSE_S * tries * random.random())
            except psycopg.errors.ReadOnlySqlTransaction:
                self._lose()  # another server may be the primary now
                raise
            except AssertionError as error:
                if not lost_track(error):
                    raise
                self._lose()
                raise psycopg.OperationalError(LOST_TRACK) from error
            finally:
                if self._tables is not None and self._tables.connection.closed:
                    self._lose()

    def _open(self) -> PostgresTables:
        if self._tables is None:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
            try:
                mark = self._prepare(connection)
                tables = PostgresTables(connection, self._cluster_id, mark, lambda: self._known.ids)
                lacking = tables.uncommitted(self._known.ids)
                self._known.check(mark, lacking, f"coordinator {self._name}")
            except BaseException:
                connection.close()
                raise
            self._tables = tables
        return self._tables

    def _lose(self) -> None:
        self._was_lost = True
        self._drop()

    def _drop(self) -> None:
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.connection.close()

    def _prepare(self, on: Connection) -> str:
        """Check the server, settle the session, bring the schema up to date; the mark."""
        facts = on.execute(SERVER_FACTS).fetchone()
        assert facts is not None
        if check_facts(facts, f"coordinator {self._name}"):
            on.execute(COMMIT_TO_DISK)
        for statement in session_settings(CALL_TIMEOUT_S):
            on.execute(statement.encode())
        with on.transaction():
            on.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
            have = on.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone()
            if have is None or have[0] is None:  # making what is there needs rights all the same
                self._check_makes()
                on.execute(f"CREATE SCHEMA {SCHEMA}".encode())
            on.execute(f"SET search_path = {SCHEMA}".encode())
            return self._migrate(on)

    def _check_makes(self) -> None:
        if not self._makes:
            raise StorageFault(NOT_THERE.format(self._name))

    def _migrate(self, on: Connection) -> str:
        have = on.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.facts",)).fetchone()
        if have is None or have[0] is None:
            self._check_makes()
            on.execute(FACTS.encode())
        stored: dict[str, Any] = dict(on.execute("SELECT name, value FROM facts").fetchall())
        check_cluster(stored.get("cluster.id", self._cluster_id), self._cluster_id, self._name)
        self._known.check_mark(stored.get("mark", ""), f"coordinator {self._name}")
        for statement in steps_from(int(stored.get("schema.version", 0)), POSTGRES, self._name):
            on.execute(statement.encode())
        facts = first_facts(stored, self._cluster_id, secrets.token_hex(MARK_BYTES))
        if facts != stored:
            with on.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO facts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET "
                    "value = excluded.value",
                    list(facts.items()),
                )
        return facts["mark"]
