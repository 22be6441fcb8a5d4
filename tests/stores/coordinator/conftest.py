"""Each engine, and coordinators that are closed after their test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from coordinator_kit import CLUSTER, Engine, make_river

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.stores.coordinator.postgres import PostgresCoordinator
from anabranch.stores.coordinator.sqlite import SqliteCoordinator

ENGINES = ("sqlite", "postgres")


class Clock:
    """Milliseconds that a test sets."""

    now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms


def sqlite_engine(path: Path) -> Engine:
    clock = Clock()

    async def connect() -> Coordinator:
        return await SqliteCoordinator.open(str(path / "diskless.db"), CLUSTER, clock=clock)

    async def make_empty() -> Coordinator:
        return await SqliteCoordinator.open(str(path / "another.db"), CLUSTER, clock=clock)

    return Engine("sqlite", connect, clock.advance, make_empty)


def postgres_engine(url: str, another: Callable[[], str]) -> Engine:
    async def connect() -> Coordinator:
        return await PostgresCoordinator.open(url, CLUSTER)

    def advance(by_ms: int) -> None:
        """The server's clock cannot be set: all that was done becomes older."""
        with psycopg.connect(url, autocommit=True) as on:
            for table, columns in TIMES.items():
                older = ", ".join(f"{column} = {column} - {by_ms}" for column in columns)
                on.execute(f"UPDATE anabranch_diskless.{table} SET {older}".encode())

    async def make_empty() -> Coordinator:
        return await PostgresCoordinator.open(another(), CLUSTER)

    return Engine("postgres", connect, advance, make_empty)


@pytest.fixture(scope="session")
def database(postgres):
    """One database for all tests: to make one is dear."""
    return str(postgres.new_database())


@pytest.fixture
def empty_database(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as on:
        on.execute("DROP SCHEMA IF EXISTS anabranch_diskless CASCADE")
    return database


TIMES = {
    "wal_objects": ("prepared_ms", "expires_ms", "committed_ms", "marked_ms"),
    "producers": ("written_ms",),
}


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    if request.param == "sqlite":
        made = sqlite_engine(tmp_path)
    else:
        made = postgres_engine(
            request.getfixturevalue("empty_database"),
            lambda: str(request.getfixturevalue("postgres").new_database()),
        )
    opened = []

    def noting(make: Callable[[], Awaitable[Coordinator]]) -> Callable[[], Awaitable[Coordinator]]:
        async def make_and_note() -> Coordinator:
            opened.append(await make())
            return opened[-1]

        return make_and_note

    made.connect, made.make_empty = noting(made.connect), noting(made.make_empty)
    yield made
    for each in opened:
        await each.close()


@pytest.fixture
async def coordinator(engine: Engine) -> Coordinator:
    """One coordinator on which a topic of two partitions is."""
    on = await engine.connect()
    await make_river(on)
    return on
