"""The batch coordinator in one SQLite file: for the brokers of one machine.

What: one thread for the file, a lock between processes, and a watch for what others change. Each
call, also one that reads, is made under `flock` of a file beside the database: SQLite's own lock
has no order, and of three committing processes one got all but two commits. Here whoever waits for
the lock holds a second one, the queue's, so that the process which has just had its turn cannot
take the next one before it. The watch: SQLite counts the transactions of a file in its header
(bytes 24 to 27, file format 1.3.7); these are looked at every few milliseconds while somebody
listens, without a lock, and only when they moved are changes read under it; what this process
itself has moved it hears without reading. Rules kept: a file that was replaced, or set back, while
it was open is asked nothing more; the loop never waits for the file; a call that takes too long
raises CoordinatorAway, and may still happen. Not here: SQL (`sqlite_tables.py`).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

from anabranch.core.diskless.coordinator import CoordinatorAway, OlderCopy
from anabranch.core.diskless.last_commits import OLDER
from anabranch.core.diskless.rows import Change
from anabranch.core.errors import StorageFault
from anabranch.stores.coordinator.front import LOAD_TIMEOUT_S, Front, Lane, Tables, wall_clock_ms
from anabranch.stores.coordinator.migrations import (
    FACTS,
    MARK_BYTES,
    NOT_THERE,
    SQLITE,
    check_cluster,
    first_facts,
    steps_from,
)
from anabranch.stores.coordinator.sqlite_tables import SqliteTables
from anabranch.stores.coordinator.worker import Worker
from anabranch.stores.sqlite_file import Kind, error_name, open_file, sentence, transaction

ResultT = TypeVar("ResultT")

CALL_TIMEOUT_S = 10.0
"""A turn takes milliseconds; another process that was stopped within its turn keeps it."""
POLL_S = 0.005
PACKETS_READ = 200
MOST_OWN = 1000
"""Transactions of this process that its listener has not heard of yet; beyond that it reads."""
PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")
"""Errors that may be over later; with the others the file cannot be used."""
REMEDIES = {
    "SQLITE_NOTADB": "name another file in diskless.coordinator.url",
    "SQLITE_CORRUPT": "rebuild it with `anabranch diskless restore`",
}
"""What helps beside what helps any SQLite file."""
KIND = Kind("coordinator", "diskless.coordinator.url", frozenset(("facts", "wal_objects")))
COUNTER_PLACE = 24
COUNTER_BYTES = 4


class _Own(NamedTuple):
    """A transaction of this process: the counter before and after it, the number of the newest
    packet of changes, and what it told."""

    before: bytes
    after: bytes
    newest: int
    changes: list[Change]


class _Turn:
    """The lock between processes: one file for the turn, one for the place of who is next."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._next = os.open(f"{path}.next", flags, 0o644)
        self._now = os.open(f"{path}.turn", flags, 0o644)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and give it back."""
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._now, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._now, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files, which stay."""
        os.close(self._next)
        os.close(self._now)


class SqliteCoordinator(Front):
    """A `Coordinator` in the file at `path`, which is made when it does not exist."""

    def __init__(self, path: str, clock: Callable[[], int]) -> None:
        super().__init__()
        self.path, self._clock = path, clock
        self._worker = Worker("diskless-coordinator")
        self._connection: sqlite3.Connection | None = None
        self._tables: SqliteTables | None = None
        self._turn: _Turn | None = None
        self._header = -1
        self._closed = False
        self._own: deque[_Own] = deque(maxlen=MOST_OWN)
        self._listeners = 0
        self._seen = 0
        """The newest packet of changes that was seen: no later turn finds an older one."""

    @classmethod
    async def open(
        cls,
        path: str,
        cluster_id: str,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        makes: bool = True,
    ) -> SqliteCoordinator:
        """Open the file, make (if it `makes` any) or migrate its tables. Raises StorageFault."""
        coordinator = cls(path, clock)
        try:
            await coordinator._run(lambda: coordinator._connect(cluster_id, makes=makes))
        except BaseException:
            await coordinator.close()
            raise
        return coordinator

    async def make(self, lane: Lane, call: Callable[[Tables], ResultT]) -> ResultT:
        """In the file's thread, in its process's turn."""
        timeout_s = LOAD_TIMEOUT_S if lane is Lane.LOAD else CALL_TIMEOUT_S
        return await self._run(lambda: self._in_turn(call), timeout_s)

    async def changes(self) -> AsyncIterator[list[Change]]:
        self._listeners += 1
        try:
            counter, after = await self._in_turn_with_counter(SqliteTables.last_change)
            yield []
            while True:
                if self._counter() == counter:
                    await asyncio.sleep(POLL_S)
                    continue
                while (own := self._next_own(counter)) is not None:
                    counter = own.after
                    if own.changes:
                        after = own.newest
                        yield own.changes
                if self._counter() == counter:
                    continue
                is_all = False
                while not is_all:
                    counter, found = await self._changes_after(after)
                    is_all = len(found) < PACKETS_READ  # the counter was read in the same turn
                    if found:
                        after = found[-1][0]
                        yield [change for _, changes in found for change in changes]
        finally:
            self._listeners -= 1

    def _next_own(self, counter: bytes) -> _Own | None:
        """The next transaction of this process, if no other one lies before it."""
        if self._listeners > 1:
            return None
        with suppress(IndexError):
            own = self._own.popleft()
            if own.before == counter:
                return own
        return None

    async def close(self) -> None:
        """Close the file once the call under way is done, for which nothing waits here long."""
        if self._closed:
            return
        self._closed = True
        with suppress(TimeoutError):
            await self._worker.run(self._disconnect, CALL_TIMEOUT_S)
        self._worker.end()

    def abandon(self) -> None:
        if not self._closed:
            self._closed = True
            self._worker.post(self._disconnect)
            self._worker.end()

    async def _run(self, call: Callable[[], ResultT], timeout_s: float = 0) -> ResultT:
        if self._closed:
            raise CoordinatorAway(f"coordinator {self.path} is closed")
        try:
            return await self._worker.run(lambda: self._guard(call), timeout_s or CALL_TIMEOUT_S)
        except TimeoutError:
            raise CoordinatorAway(
                f"coordinator {self.path}: no answer within {CALL_TIMEOUT_S:g} s; its disk is "
                "slow, or a suspended process holds its lock: resume or end that process"
            ) from None

    async def _changes_after(self, after: int) -> tuple[bytes, list[tuple[int, list[Change]]]]:
        counter, found = await self._in_turn_with_counter(
            lambda tables: tables.changes_after(after, PACKETS_READ)
        )
        if found and found[0][0] != after + 1:
            raise CoordinatorAway(f"coordinator {self.path}: changes were missed")
        return counter, found

    async def _in_turn_with_counter(
        self, call: Callable[[SqliteTables], ResultT]
    ) -> tuple[bytes, ResultT]:
        """What was read, and the counter then: before, it may be of a transaction that a process
        has not ended, and that is rolled back by who reads next."""

        def read(tables: SqliteTables) -> tuple[bytes, ResultT]:
            found = call(tables)
            self._own.clear()  # the listener knows all of it now
            return self._counter(), found

        return await self._run(lambda: self._in_turn(read))

    def _counter(self) -> bytes:
        try:
            return os.pread(self._header, COUNTER_BYTES, COUNTER_PLACE)
        except OSError as error:
            raise CoordinatorAway(f"coordinator {self.path}: {error.strerror}") from error

    # Everything below runs in the file's thread.

    def _guard(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except sqlite3.Error as error:
            kind = CoordinatorAway if error_name(error).startswith(PASSING) else StorageFault
            raise kind(f"coordinator {self.path}: {sentence(error, REMEDIES)}") from error
        except OSError as error:
            raise StorageFault(
                f"coordinator {self.path}: {error.strerror}; check that its folder is writable"
            ) from error

    def _in_turn(self, call: Callable[[SqliteTables], ResultT]) -> ResultT:
        if self._turn is None or self._tables is None:
            raise CoordinatorAway(f"coordinator {self.path} is closed")
        tables = self._tables
        with self._turn.taken():
            self._check_place()
            self._check_newest(tables.last_change())
            before = self._counter()
            tables.told = []
            result = call(tables)  # a fault: the listener reads what came of it
            after = self._counter()
            if tables.told:
                self._seen = tables.newest_packet
            if self._listeners and after != before:  # no other process writes meanwhile
                self._own.append(_Own(before, after, tables.newest_packet, tables.told))
            self._check_place()  # what was written into a file that has no name any more is lost
            return result

    def _check_place(self) -> None:
        """Whether the file that is open is still the one of that name."""
        try:
            here = os.stat(self.path)
        except FileNotFoundError:
            raise CoordinatorAway(f"coordinator {self.path}: it is gone; put it back") from None
        if not os.path.samestat(here, os.fstat(self._header)):
            raise OlderCopy(f"coordinator {self.path}: another file is in its place: {OLDER}")

    def _check_newest(self, newest: int) -> None:
        """Whether the file has all changes that were seen in it."""
        if newest < self._seen:
            raise OlderCopy(
                f"coordinator {self.path}: it had change {self._seen}, and now {newest} is its "
                f"last one: {OLDER}"
            )
        self._seen = newest

    def _connect(self, cluster_id: str, *, makes: bool) -> None:
        if not makes and not os.path.exists(self.path):
            raise StorageFault(NOT_THERE.format(self.path))
        self._connection = open_file(self.path, KIND)
        self._turn = _Turn(os.path.realpath(self.path))
        with self._turn.taken(), transaction(self._connection) as on:
            mark = self._migrate(on, cluster_id, makes=makes)
        self._header = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._tables = SqliteTables(self._connection, cluster_id, mark, self._clock)

    def _migrate(self, on: sqlite3.Connection, cluster_id: str, *, makes: bool) -> str:
        """Bring the schema up to date; the mark of this database."""
        on.execute(FACTS)
        facts: dict[str, str] = dict(on.execute("SELECT name, value FROM facts"))
        if not (makes or facts):
            raise StorageFault(NOT_THERE.format(self.path))
        check_cluster(facts.get("cluster.id", cluster_id), cluster_id, self.path)
        for statement in steps_from(int(facts.get("schema.version", 0)), SQLITE, self.path):
            on.execute(statement)
        new = first_facts(facts, cluster_id, secrets.token_hex(MARK_BYTES))
        if new != facts:
            on.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", new.items())
        return new["mark"]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._header >= 0:
            os.close(self._header)
        if self._turn is not None:
            self._turn.close()
        self._connection, self._tables, self._turn, self._header = None, None, None, -1
