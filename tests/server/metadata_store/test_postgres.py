"""What only PostgreSQL can do to a metadata store: be away, refuse, restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from node_kit import free_port

from anabranch.core.controller.metadata_store import Committed, StoreAway, StoredBatch
from anabranch.core.errors import StorageFault
from anabranch.server.metadata_store.opening import open_for_start, open_store, shown


def test_no_password_is_shown() -> None:
    assert shown("postgresql://me:secret@host:5/db") == "postgresql://me@host:5/db"
    assert shown("postgresql://me@host/db") == "postgresql://me@host/db"
    assert shown("sqlite:///a/b.db") == "sqlite:///a/b.db"


async def test_a_server_that_is_away_or_refuses_is_one_line_without_the_password(
    postgres: Any,
) -> None:
    for url in (
        f"postgresql://anabranch:river@127.0.0.1:{free_port()}/postgres",
        postgres.url("postgres", "not-the-password"),
        postgres.url("no-such-database"),
        "mysql://me:river@host/db",
    ):
        with pytest.raises(StorageFault) as told:
            await open_store(url)
        assert "metadata" in str(told.value)
        assert "\n" not in str(told.value)
        assert "river" not in str(told.value)
        assert "not-the-password" not in str(told.value)


async def test_a_start_waits_for_a_server_that_is_away_and_not_for_one_that_refuses(
    postgres: Any,
) -> None:
    url = postgres.new_database()
    postgres.stop(at_once=True)
    with pytest.raises(StoreAway):
        await open_for_start(url, timeout_ms=0)
    starting = asyncio.create_task(open_for_start(url, timeout_ms=60_000))
    await asyncio.to_thread(postgres.start)
    await (await starting).close()
    for refused in (
        postgres.url("postgres", "not-the-password"),
        postgres.url("no-such-database"),
    ):
        with pytest.raises(StorageFault) as told:
            await open_for_start(refused, timeout_ms=3_600_000)
        assert not isinstance(told.value, StoreAway)


async def test_what_was_committed_is_there_after_the_server_ended_at_once(postgres: Any) -> None:
    store = await open_store(postgres.new_database())
    lease = await store.take_lease(None, 1, "first", "127.0.0.1:1")
    assert lease is not None
    answer = await store.append(lease.epoch, 0, [StoredBatch(0, 2, lease.epoch, b"two records")])
    assert answer == Committed(2)
    postgres.stop(at_once=True)
    postgres.start()
    assert await store.lease() == lease
    assert (await store.end()).end_offset == 2
    assert [bytes(each.payload) for each in await store.read(0, 100)] == [b"two records"]
    answer = await store.append(lease.epoch, 2, [StoredBatch(2, 3, lease.epoch, b"one more")])
    assert answer == Committed(3)
    await store.close()
