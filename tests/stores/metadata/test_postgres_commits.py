"""Commits of the PostgreSQL store that might not last, or whose answer was lost (R17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_kit import Host, eventually, topic
from tests.stores.postgres_kit import PostgresServer

from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.metadata.store import Committed, StoredBatch, Unknown
from anabranch.stores.metadata.engines import open_store


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its standby, which streams asynchronously."""
    primary = PostgresServer().start()
    primary.execute("postgres", "CREATE DATABASE metadata")
    standby = primary.standby().start()
    try:
        primary.wait_for("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


async def test_an_asynchronous_standby_is_refused_and_a_synchronous_one_is_not(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, _ = pair
    with pytest.raises(StorageFault, match=r"asynchronous.*set synchronous_standby_names"):
        await open_store(primary.url("metadata"))
    assert primary.wait_for("SELECT to_regclass('anabranch.facts') IS NULL", "metadata")

    primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("postgres", "ALTER SYSTEM SET synchronous_commit = 'local'")
    primary.execute("postgres", "SELECT pg_reload_conf()")
    primary.wait_for("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
    store = await open_store(primary.url("metadata"))
    lease = await store.take_lease(None, 1, "first", "")
    assert lease is not None
    answer = await store.append(lease, 0, [StoredBatch(0, 1, lease.epoch, b"x")])
    assert answer == Committed(1)
    await store.close()


async def test_commits_wait_for_the_standby_whatever_the_server_s_default(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    """synchronous_commit = local would acknowledge what only the primary has."""
    primary, standby = pair
    store = await open_store(primary.url("metadata"))
    lease = await store.lease()
    assert lease is not None
    end = (await store.end()).end_offset
    await store.append(lease, end, [StoredBatch(end, end + 1, lease.epoch, b"both")])
    assert standby.wait_for(f"SELECT count(*) FROM anabranch.log WHERE first_offset = {end}",
                            "metadata")  # fmt: skip
    await store.close()


async def test_a_standby_is_no_store(pair: tuple[PostgresServer, PostgresServer]) -> None:
    with pytest.raises(StorageFault, match="it is a standby; use the primary"):
        await open_store(pair[1].url("metadata"))


@pytest.mark.parametrize("version", ["'0'", "'2'", "'999'", None])
async def test_an_older_or_newer_schema_is_refused_and_left_alone(
    postgres: Any, version: str | None
) -> None:
    url = postgres.new_database()
    store = await open_store(url)
    lease = await store.take_lease(None, 1, "first", "")
    await store.close()
    database = url.rpartition("/")[2]
    where = "WHERE name = 'schema.version'"
    if version is None:
        postgres.execute(database, f"DELETE FROM anabranch.facts {where}")
    else:
        postgres.execute(database, f"UPDATE anabranch.facts SET value = {version} {where}")
    shown = "none" if version is None else version.strip("'")
    for _ in range(2):
        with pytest.raises(
            StorageFault, match=f"version {shown}, but this version of Anabranch supports only 1"
        ):
            await open_store(url)
    postgres.execute(database, f"DELETE FROM anabranch.facts {where}")
    postgres.execute(database, "INSERT INTO anabranch.facts VALUES ('schema.version', '1')")
    again = await open_store(url)
    assert await again.lease() == lease
    await again.close()


class Cut:
    """Passes bytes on; when armed, passes a COMMIT on and loses its answer."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.is_armed = False
        self.lost = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self) -> Cut:
        self._server = await asyncio.start_server(self._took, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _took(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", self.target)
        self._tasks.append(asyncio.create_task(self._ask(reader, writer, there, to_there)))

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        there: asyncio.StreamReader, to_there: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        back = asyncio.create_task(self._answer(there, writer))
        while piece := await reader.read(1 << 16):
            if self.is_armed and b"COMMIT" in piece:
                self.is_armed = False
                back.cancel()
                await asyncio.wait((back,))
                to_there.write(piece)
                await there.read(1)  # the server has committed, and says so to nobody
                self.lost += 1
                writer.transport.abort()
                to_there.close()
                return
            to_there.write(piece)
        to_there.close()

    async def _answer(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await there.read(1 << 16):
            writer.write(piece)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._server.close()


@pytest.fixture
async def cut(postgres: Any) -> AsyncIterator[Cut]:
    cut = await Cut(postgres.port).listen()
    yield cut
    cut.close()


def through(cut: Cut, url: str) -> str:
    server, _, database = url.rpartition("/")
    return f"{server.rpartition(':')[0]}:{cut.port}/{database}"


async def test_a_commit_whose_answer_was_lost_is_unknown(postgres: Any, cut: Cut) -> None:
    store = await open_store(through(cut, postgres.new_database()))
    lease = await store.take_lease(None, 1, "first", "")
    assert lease is not None
    cut.is_armed = True
    answer = await store.append(lease, 0, [StoredBatch(0, 2, lease.epoch, b"two")])
    assert isinstance(answer, Unknown) and cut.lost == 1
    assert (await store.end()).end_offset == 2, "it was committed all the same"
    await store.close()


async def test_the_controller_resigns_and_reads_what_was_committed(
    postgres: Any, cut: Cut, tmp_path: Path
) -> None:
    """Nothing is answered on a guess, and nothing is decided twice."""
    store = await open_store(through(cut, postgres.new_database()))
    host = await Host(tmp_path / "unused", node_id=1).start(store)
    await host.commit(topic(1))
    epoch = host.shell.controller.epoch
    cut.is_armed = True
    with pytest.raises(ApiError) as refused:
        await host.commit(topic(2))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER and cut.lost == 1
    await eventually(lambda: host.shell.controller.active)
    assert host.shell.controller.epoch == epoch + 1
    assert set(host.image.topic_ids_by_name) == {"t1", "t2"}
    await host.commit(topic(3))
    await host.stop()
