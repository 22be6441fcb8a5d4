"""Which databases are refused, and what is said of those that do not answer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from coordinator_kit import CLUSTER

from anabranch.client.ports import free_ports
from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId
from anabranch.stores.coordinator import migrations
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.migrations import NEWEST
from anabranch.stores.metadata.engines import open_store
from anabranch.stores.sqlite_file import REMEDIES


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_database"))
    return f"sqlite://{tmp_path}/diskless.db"


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """In the coordinator's tables, past the coordinator."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as on, on:
            return on.execute(statement).fetchall()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = anabranch_diskless")
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def opened_once(url: str) -> None:
    await (await open_coordinator(url, CLUSTER)).close()


async def test_a_database_is_made_once_and_keeps_its_mark(url: str) -> None:
    await opened_once(url)
    facts = dict(execute(url, "SELECT name, value FROM facts"))
    await opened_once(url)
    assert dict(execute(url, "SELECT name, value FROM facts")) == facts
    assert (facts["cluster.id"], facts["schema.version"]) == (CLUSTER, str(NEWEST))


async def test_a_database_is_made_only_for_who_makes_one(url: str) -> None:
    with pytest.raises(StorageFault, match="there is none; correct diskless"):
        await open_coordinator(url, CLUSTER, makes=False)
    if url.startswith("sqlite"):
        assert not Path(url.removeprefix("sqlite://")).exists()
    else:
        assert execute(url, "SELECT to_regnamespace('anabranch_diskless') IS NULL") == [(True,)]
    await opened_once(url)
    await (await open_coordinator(url, CLUSTER, makes=False)).close()


async def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    await opened_once(url)
    execute(url, f"UPDATE facts SET value = '{NEWEST + 1}' WHERE name = 'schema.version'")
    with pytest.raises(
        StorageFault, match=f"version {NEWEST + 1}, but this version of Anabranch supports only"
    ):
        await open_coordinator(url, CLUSTER)
    found = execute(url, "SELECT value FROM facts WHERE name = 'schema.version'")
    assert found == [(str(NEWEST + 1),)]


async def test_rows_of_the_first_schema_are_kept_by_a_newer_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TopicId(b"t" * 16)
    with monkeypatch.context() as older:
        older.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        older.setattr(migrations, "NEWEST", 1)
        await opened_once(url)
    columns = "(topic_id, partition, topic_name, high_watermark)"
    raw = "X'%s'" if url.startswith("sqlite") else "decode('%s', 'hex')"
    execute(url, f"INSERT INTO logs {columns} VALUES ({raw % topic.hex()}, 0, 'river', 5)")
    on = await open_coordinator(url, CLUSTER)
    assert await on.states([LogKey(topic, 0)]) == [LogState(0, 5)]
    await on.take_control(1)
    await on.delete_topics(1, [topic])
    assert await on.states([LogKey(topic, 0)]) == [None]
    await on.close()
    found = execute(url, "SELECT value FROM facts WHERE name = 'schema.version'")
    assert found == [(str(NEWEST),)]


async def test_the_coordinator_of_another_cluster_is_refused(url: str) -> None:
    await opened_once(url)
    with pytest.raises(StorageFault, match=f"belongs to cluster {CLUSTER}, this node to .*other"):
        await open_coordinator(url, "other")


async def test_an_empty_file_is_no_coordinator_for_who_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "diskless.db"
    path.touch()
    with pytest.raises(StorageFault, match="there is none; correct diskless"):
        await open_coordinator(str(path), CLUSTER, makes=False)
    assert path.stat().st_size == 0


async def test_a_schema_without_tables_is_no_coordinator_for_who_makes_none(
    empty_database: str,
) -> None:
    """An administrator may make the schema for a user who may not."""
    execute(empty_database, "CREATE SCHEMA anabranch_diskless")
    with pytest.raises(StorageFault, match="there is none; correct diskless"):
        await open_coordinator(empty_database, CLUSTER, makes=False)
    assert execute(empty_database, "SELECT to_regclass('facts') IS NULL") == [(True,)]
    await opened_once(empty_database)


@pytest.mark.parametrize("makes", [True, False])
async def test_the_database_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, makes: bool
) -> None:
    """The metadata store has a table of a name that the coordinator has, too."""
    store = await open_store(f"sqlite://{tmp_path}/metadata.db")
    await store.cluster_id(CLUSTER)
    await store.close()
    before = (tmp_path / "metadata.db").read_bytes()
    with pytest.raises(StorageFault, match=r"else, .*; name another file in diskless"):
        await open_coordinator(f"sqlite://{tmp_path}/metadata.db", CLUSTER, makes=makes)
    assert (tmp_path / "metadata.db").read_bytes() == before


async def test_the_coordinator_is_refused_as_metadata_store(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/diskless.db"
    await opened_once(url)
    before = (tmp_path / "diskless.db").read_bytes()
    with pytest.raises(StorageFault, match=r"else, .*; name another file in metadata"):
        await open_store(url)
    assert (tmp_path / "diskless.db").read_bytes() == before


async def test_a_schema_of_no_version_gets_all_steps(url: str) -> None:
    """A process that ended while it made the tables left none of them."""
    if url.startswith("postgres"):
        execute(url, "CREATE SCHEMA anabranch_diskless")
    execute(url, "CREATE TABLE facts (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    await opened_once(url)
    assert execute(url, "SELECT count(*) FROM logs") == [(0,)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "names no file; write"),
        ("sqlite://m.db", "names no file; write"),
        (":memory:", "names no file; write"),
        ("mysql://me:river@host/db", "names no known coordinator; write"),
        ("postgresql://me:river@127.0.0.1:1/db?nonsense=1", "is not a PostgreSQL URL; write"),
    ],
)
async def test_what_is_no_coordinator_is_said(url: str, said: str) -> None:
    with pytest.raises(StorageFault, match=said) as told:
        await open_coordinator(url, CLUSTER)
    assert "river" not in str(told.value)
    assert "diskless.coordinator.url" in str(told.value)


async def test_a_server_that_is_not_there_is_away(postgres: Any) -> None:
    (port,) = free_ports(1)
    with pytest.raises(CoordinatorAway) as told:
        await open_coordinator(f"postgresql://me:river@127.0.0.1:{port}/db", CLUSTER)
    assert f"127.0.0.1:{port}/db" in str(told.value)
    assert "river" not in str(told.value)
    assert "see that the server runs, and that diskless.coordinator.url" in str(told.value)
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as on:
        on.execute("CREATE ROLE poor LOGIN PASSWORD 'river'")
        on.execute("REVOKE CREATE ON DATABASE postgres FROM poor")
    poor = postgres.url("postgres", "river").replace("anabranch:", "poor:", 1)
    for refused, remedy in (
        (postgres.url("postgres", "not-the-password"), "and PGPASSWORD or the password file"),
        (postgres.url("no-such"), "make it on the server, or correct diskless.coordinator.url"),
        (poor, "grant it to the user of diskless.coordinator.url"),
    ):
        with pytest.raises(StorageFault, match=remedy) as told:
            await open_coordinator(refused, CLUSTER)
        assert not isinstance(told.value, CoordinatorAway)
        assert "not-the-password" not in str(told.value)


async def test_what_is_no_file_or_no_database_is_said_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 500)
    (tmp_path / "folder").mkdir()
    for path, said in (
        ("text", "name another file in diskless.coordinator.url"),
        ("folder", REMEDIES["SQLITE_CANTOPEN"]),
        ("text/diskless.db", "text/diskless.db: .*; see that its folder can be made"),
    ):
        with pytest.raises(StorageFault, match=said) as told:
            await open_coordinator(str(tmp_path / path), CLUSTER)
        assert not isinstance(told.value, CoordinatorAway)
