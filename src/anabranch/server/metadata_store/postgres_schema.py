"""What the PostgreSQL store needs of its server: the tables, their version, and lasting commits.

What: makes the tables once, under an advisory lock; refuses another version of them; refuses a
server whose commits would not last; settles a session's isolation and patience. Rule kept: nothing
is changed in a database that is refused. Not here: a standby that joins later, or that this user
may not see, is not noticed.
"""

from __future__ import annotations

from typing import Any

import psycopg

from anabranch.core.errors import StorageFault

SCHEMA_VERSION = 1
MAKING_LOCK = 0x616E6162
"""The advisory lock of whoever makes the tables: the letters "anab"."""

SCHEMA = (
    "CREATE SCHEMA IF NOT EXISTS anabranch",
    "CREATE TABLE anabranch.facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE anabranch.log (first_offset BIGINT PRIMARY KEY, end_offset BIGINT NOT NULL, "
    "epoch BIGINT NOT NULL, payload BYTEA NOT NULL)",
    "CREATE TABLE anabranch.snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "end_offset BIGINT NOT NULL, epoch BIGINT NOT NULL, payload BYTEA NOT NULL)",
    "CREATE TABLE anabranch.lease (one INTEGER PRIMARY KEY CHECK (one = 1), "
    "epoch BIGINT NOT NULL, holder BIGINT NOT NULL, incarnation TEXT NOT NULL, "
    "endpoint TEXT NOT NULL, beat BIGINT NOT NULL)",
    f"INSERT INTO anabranch.facts VALUES ('schema.version', '{SCHEMA_VERSION}')",
)


async def check_server(on: psycopg.AsyncConnection[Any], name: str) -> None:
    """Refuse a server that would lose commits. Raises StorageFault."""
    cursor = await on.execute(
        "SELECT pg_is_in_recovery(), current_setting('fsync'), "
        "current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), "
        "(SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')"
    )
    row = await cursor.fetchone()
    assert row is not None
    in_recovery, fsync, synchronous_names, synchronous_commit, standbys = row
    if in_recovery:
        raise StorageFault(f"metadata store {name}: it is a standby; name the primary")
    if fsync == "off":
        raise StorageFault(
            f"metadata store {name}: it runs with fsync=off and could lose commits; set fsync=on"
        )
    if standbys and not synchronous_names:
        raise StorageFault(
            f"metadata store {name}: its standby is asynchronous, so a failover could lose "
            "commits; set synchronous_standby_names"
        )
    if synchronous_commit in ("off", "local"):
        await on.execute("SET synchronous_commit = on")


async def make_session(on: psycopg.AsyncConnection[Any], idle_s: float) -> None:
    """Settle what a server may have other defaults for: a writer that has waited for the row reads
    what was committed meanwhile; one that says nothing within a transaction for `idle_s` (its cable
    is cut) is ended, and with it its lock, for which TCP alone may take two hours."""
    await on.execute("SET default_transaction_isolation = 'read committed'")
    await on.execute(f"SET idle_in_transaction_session_timeout = {round(idle_s * 1000)}".encode())


async def make_schema(on: psycopg.AsyncConnection[Any], name: str) -> None:
    """Make the tables, or compare the version of those that are there. Raises StorageFault."""
    async with on.transaction():
        await on.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
        found = await (await on.execute("SELECT to_regclass('anabranch.facts')")).fetchone()
        if found is None or found[0] is None:
            for statement in SCHEMA:
                await on.execute(statement.encode())
            return
        cursor = await on.execute("SELECT value FROM anabranch.facts WHERE name = 'schema.version'")
        version = await cursor.fetchone()
    have = "none" if version is None else str(version[0])
    if have != str(SCHEMA_VERSION):
        raise StorageFault(
            f"metadata store {name}: its schema has version {have}, this program knows only "
            f"{SCHEMA_VERSION}; run the version of Anabranch that made it"
        )
