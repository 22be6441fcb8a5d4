"""Where the metadata of a run is committed, and how that fails: a SQLite file, or PostgreSQL.

What: `hold` makes every writer wait, as a slow disk or a long transaction of somebody else does;
`end` takes a PostgreSQL server away and brings it back, in order or by a crash. Rule kept: what was
committed stays; nothing here loses a transaction. Not here: the lease (`watch`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from chaos.network import Host


class Nothing(Exception):
    """The fault found nobody to happen to."""


class Turn:
    """One fault of a store at a time: who comes meanwhile finds nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise Nothing("something is wrong with the store already")

    def __exit__(self, *_fault: object) -> None:
        self._lock.release()


class SqliteFile:
    """A file beside the nodes' folders."""

    kinds = frozenset({"hold-store"})
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metadata-store.db"
        self.url = f"sqlite://{self._path}"
        self.setting = self.name
        self._turn = Turn()

    @contextlib.contextmanager
    def hold(self, strength: float) -> Iterator[str]:
        """Hold the file's lock: nobody writes, and in half of the cases nobody reads either."""
        mode = "EXCLUSIVE" if strength < 0.5 else "IMMEDIATE"
        with self._turn:
            connection = sqlite3.connect(self._path, timeout=10.0, isolation_level=None)
            try:
                connection.execute(f"BEGIN {mode}")
                yield f"hold the metadata store ({mode.lower()})"
                connection.execute("ROLLBACK")
            finally:
                connection.close()

    def close(self) -> None:
        """Nothing runs."""


class PostgresDatabase:
    """A server of its own, as the tests of the store use it."""

    kinds = frozenset({"hold-store", "end-store", "crash-store"})
    name = "postgres"

    def __init__(self, host: Host | None = None) -> None:
        from tests.stores.postgres_kit import PostgresServer

        server = PostgresServer(host.address, host.prefix) if host else PostgresServer()
        self._server = server.start()
        self.url = self.setting = self._server.new_database()
        self._turn = Turn()

    def new_database(self) -> str:
        """The URL of another database of the server, in which nothing is."""
        return self._server.new_database()

    @contextlib.contextmanager
    def hold(self, strength: float) -> Iterator[str]:
        """Stand before every writer with a lock; or have the whole server stand still."""
        with self._turn, self._locked() if strength < 0.5 else self._paused() as said:
            yield said

    @contextlib.contextmanager
    def _locked(self) -> Iterator[str]:
        with psycopg.connect(self.url) as connection:
            connection.execute("LOCK TABLE anabranch.facts IN ACCESS EXCLUSIVE MODE")
            yield "hold the metadata store (table)"
            connection.rollback()

    @contextlib.contextmanager
    def _paused(self) -> Iterator[str]:
        group = _family(self._server.process.pid)
        for each in group:
            _send(each, signal.SIGSTOP)
        try:
            yield "pause the metadata store"
        finally:
            for each in group:
                _send(each, signal.SIGCONT)

    @contextlib.contextmanager
    def end(self, *, at_once: bool) -> Iterator[str]:
        """End the server, by a crash or in order, and start it again."""
        with self._turn:
            self._server.stop(at_once=at_once)
            try:
                yield "crash the metadata store" if at_once else "restart the metadata store"
            finally:
                self._server.start()

    def close(self) -> None:
        """End the server and remove its folder."""
        self._server.remove()


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_at_most(seconds: float, until: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
