"""What the metadata store and the batch coordinator share in their use of SQLite.

What: how a file is opened, a transaction, and what to do about an error. Rule kept: a rollback
journal and synchronous=FULL, which survive a power cut with several processes at one file;
journal_mode=PERSIST: ending a transaction zeroes the journal's header and syncs it, whereas DELETE
would leave the unlinking unsynced. A transaction that writes is thus five syncs: journal, its
folder, journal's header, database, journal's header; without WAL there is no checkpoint that now
and then makes a commit wait. Not here: threads, locks between processes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.stores.disk import make_folder

SHOWN_TABLES = 3
BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another process's transaction; those take milliseconds."""

REMEDIES = {
    "SQLITE_FULL": "free space on its volume",
    "SQLITE_READONLY": "its volume or the file is read-only; make it writable for this user",
    "SQLITE_READONLY_DBMOVED": "the file was moved, replaced or removed while it was open; "
    "stop all nodes that use it, see that the right file is in its place, and start them again",
    "SQLITE_CANTOPEN": "check that its folder exists and is writable for this user",
    "SQLITE_BUSY": "another program has locked it; end that program's transaction, and resume or "
    "end a node that is suspended",
    "SQLITE_IOERR": "check its disk",
}
"""What helps, by the begin of SQLite's name of an error."""


class Kind(NamedTuple):
    """What a file is for: its name in errors, the setting that names it, and tables of its."""

    what: str
    setting: str
    tables: frozenset[str]


def open_file(path: str, kind: Kind) -> sqlite3.Connection:
    """A connection to the file, which is made with its folder when it is not there. Raises
    StorageFault, also for the database of another program or purpose, and sqlite3.Error."""
    try:
        make_folder(os.path.dirname(path) or ".")
    except OSError as error:
        raise StorageFault(
            f"{kind.what} {path}: {error.strerror}; see that its folder can be made and written in"
        ) from error
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _check_kind(connection, path, kind)
        connection.execute("PRAGMA journal_mode=PERSIST")
        connection.execute("PRAGMA synchronous=FULL")
    except (sqlite3.Error, StorageFault):
        connection.close()
        raise
    return connection


def _check_kind(connection: sqlite3.Connection, path: str, kind: Kind) -> None:
    """Refuse a database that was made for something else, before anything of it is changed."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = {name for (name,) in found if not name.startswith("sqlite_")}
    if not (tables <= kind.tables or tables >= kind.tables):
        some = ", ".join(sorted(tables - kind.tables)[:SHOWN_TABLES])
        raise StorageFault(
            f"{kind.what} {path}: this is the database of something else, with tables such as "
            f"{some}; name another file in {kind.setting}"
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of an error, such as SQLITE_FULL; empty when it has none."""
    return getattr(error, "sqlite_errorname", "")


def sentence(error: sqlite3.Error, remedies: Mapping[str, str]) -> str:
    """What SQLite says, and what to do: `remedies` go before those that hold for any file, and what
    holds for one error before what holds for its kind."""
    name, known = error_name(error), {**REMEDIES, **remedies}
    start = max((each for each in known if name.startswith(each)), key=len, default="")
    return "; ".join((str(error), known[start])) if start else str(error)
