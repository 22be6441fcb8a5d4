"""What the PostgreSQL store needs of its server: the tables, their version, and durable commits.

What: makes the tables once, under an advisory lock; refuses another version of them; refuses a
server whose commits would not last; settles a session's isolation and patience. Rule kept: nothing
is changed in a database that is refused. Not here: a standby that joins later, or that this user
may not see, is not noticed.
"""

from __future__ import annotations

from typing import Any

import psycopg

from anabranch.core.errors import StorageFault
from anabranch.stores.postgres_server import (
    COMMIT_TO_DISK,
    SERVER_FACTS,
    check_facts,
    session_settings,
)

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
    facts = await (await on.execute(SERVER_FACTS)).fetchone()
    assert facts is not None
    if check_facts(facts, f"metadata store {name}"):
        await on.execute(COMMIT_TO_DISK)


async def make_session(on: psycopg.AsyncConnection[Any], idle_s: float) -> None:
    """Settle what a server may have other defaults for."""
    for statement in session_settings(idle_s):
        await on.execute(statement.encode())


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
            f"metadata store {name}: its schema has version {have}, but this version of Anabranch "
            f"supports only {SCHEMA_VERSION}; run the version that created it"
        )
