"""What only PostgreSQL can do to a metadata store: be away, refuse, restart."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from node_kit import free_port

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import Committed, Deposed, Snapshot, StoreAway, StoredBatch
from anabranch.server.store_patience import Patience, open_for_start
from anabranch.stores.metadata import postgres as postgres_store
from anabranch.stores.metadata.engines import open_store


async def test_a_server_that_is_away_or_refuses_is_one_line_without_the_password(
    postgres: Any,
) -> None:
    for url in (
        f"postgresql://anabranch:river@127.0.0.1:{free_port()}/postgres",
        postgres.url("postgres", "not-the-password"),
        postgres.url("no-such-database"),
        "mysql://me:river@host/db",
        "mysql://host/db?user=me&password=river",
    ):
        with pytest.raises(StorageFault) as told:
            await open_store(url)
        assert "metadata" in str(told.value)
        assert "\n" not in str(told.value)
        assert "river" not in str(told.value)
        assert "not-the-password" not in str(told.value)


@pytest.mark.slow
async def test_a_start_waits_for_a_server_that_is_away_and_not_for_one_that_refuses(
    postgres: Any,
) -> None:
    url = postgres.new_database()
    postgres.stop(at_once=True)
    with pytest.raises(StoreAway):
        await open_for_start(url, Patience(0))
    starting = asyncio.create_task(open_for_start(url, Patience(60_000)))
    await asyncio.to_thread(postgres.start)
    await (await starting).close()
    for refused in (
        postgres.url("postgres", "not-the-password"),
        postgres.url("no-such-database"),
    ):
        with pytest.raises(StorageFault) as told:
            await open_for_start(refused, Patience(3_600_000))
        assert not isinstance(told.value, StoreAway)


async def test_what_was_committed_is_there_after_the_server_ended_at_once(postgres: Any) -> None:
    store = await open_store(postgres.new_database())
    lease = await store.take_lease(None, 1, "first", "127.0.0.1:1")
    assert lease is not None
    answer = await store.append(lease, 0, [StoredBatch(0, 2, lease.epoch, b"two records")])
    assert answer == Committed(2)
    postgres.stop(at_once=True)
    postgres.start()
    assert await store.lease() == lease
    assert (await store.end()).end_offset == 2
    assert [bytes(each.payload) for each in await store.read(0, 100)] == [b"two records"]
    answer = await store.append(lease, 2, [StoredBatch(2, 3, lease.epoch, b"one more")])
    assert answer == Committed(3)
    await store.close()


async def two_stores(url: str) -> tuple[Any, Any]:
    return await open_store(url), await open_store(url)


async def test_a_controller_that_is_cut_off_within_a_transaction_does_not_hold_up_the_others(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TCP alone a server may notice after two hours that a machine is gone."""
    monkeypatch.setattr(postgres_store, "CALL_TIMEOUT_S", 0.5)
    cut_off, other = await two_stores(postgres.new_database())
    monkeypatch.undo()
    lease = await other.take_lease(None, 1, "first", "")
    await cut_off._connection.execute("BEGIN")
    await cut_off._connection.execute(
        "SELECT 1 FROM anabranch.facts WHERE name = 'schema.version' FOR UPDATE"
    )
    answer = await other.append(lease, 0, [StoredBatch(0, 1, lease.epoch, b"x")])
    assert answer == Committed(1)
    await cut_off.close()
    await other.close()


async def test_an_append_that_waited_for_a_takeover_is_refused_whatever_the_database_s_default(
    postgres: Any,
) -> None:
    """Under `repeatable read` it would look at the lease as it was before it waited."""
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    postgres.execute(
        "postgres", f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
    )
    deposed, taker = await two_stores(url)
    lease = await deposed.take_lease(None, 1, "first", "")
    on = taker._connection
    async with postgres_store._transaction(on):
        appending = asyncio.create_task(
            deposed.append(lease, 0, [StoredBatch(0, 1, lease.epoch, b"x")])
        )
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await asyncio.to_thread(postgres.wait_for, waits)
        await on.execute("UPDATE anabranch.lease SET epoch = epoch + 1, holder = 2")
    assert await appending == Deposed(lease.epoch + 1, 0)
    await deposed.close()
    await taker.close()


async def test_a_snapshot_that_takes_long_delays_neither_the_lease_nor_appends(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of hundreds of megabytes does; here another transaction holds its row."""
    url = postgres.new_database()
    store = await open_store(url)
    lease = await store.take_lease(None, 1, "first", "")
    assert lease is not None
    await store.append(lease, 0, [StoredBatch(0, 2, lease.epoch, b"two records")])
    await store.save_snapshot(Snapshot(1, lease.epoch, b"old"), keep_log_from=0)
    monkeypatch.setattr(postgres_store, "CALL_TIMEOUT_S", 0.5)
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM anabranch.snapshot FOR UPDATE")
        newer = Snapshot(2, lease.epoch, bytes(8 << 20))
        saving = asyncio.create_task(store.save_snapshot(newer, keep_log_from=2))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await asyncio.to_thread(postgres.wait_for, waits)
        lease = await store.renew_lease(lease)
        assert lease is not None
        batch = StoredBatch(2, 3, lease.epoch, b"one more")
        assert await store.append(lease, 2, [batch]) == Committed(3)
        await asyncio.sleep(2 * postgres_store.CALL_TIMEOUT_S)
    await saving
    assert await store.load_snapshot() == newer
    assert [bytes(each.payload) for each in await store.read(0, 100)] == [b"one more"]
    assert await store.end() == (2, 3, lease.epoch)
    await store.close()


@pytest.mark.parametrize(("size_bytes", "connections"), [(1 << 20, 0), (1 << 21, 1)])
async def test_only_a_large_snapshot_is_read_over_a_connection_of_its_own(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, size_bytes: int, connections: int
) -> None:
    """A controller that takes over need not connect again for a small one."""
    store = await open_store(postgres.new_database())
    snapshot = Snapshot(1, 1, bytes(size_bytes))
    await store.save_snapshot(snapshot, keep_log_from=0)
    connect, made = psycopg.AsyncConnection.connect, []

    async def counted(*given: Any, **more: Any) -> Any:
        made.append(given)
        return await connect(*given, **more)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)
    assert await store.load_snapshot() == snapshot
    assert len(made) == connections
    await store.close()


async def asleep(postgres: Any, store: Any) -> tuple[asyncio.Task[None], list[Any]]:
    """A call apart that takes long, and the connections that it was made on."""
    tried: list[Any] = []

    async def sleep(on: Any) -> None:
        tried.append(on)
        await on.execute("SELECT pg_sleep(600)")

    call = asyncio.create_task(store._run_apart(sleep, 0, again=True))
    await sleepers(postgres, store, 1)
    return call, tried


async def sleepers(postgres: Any, store: Any, count: int) -> None:
    """Return when so many calls of the store's database sleep."""
    found = (
        f"SELECT count(*) = {count} FROM pg_stat_activity "
        "WHERE wait_event = 'PgSleep' AND datname = current_database()"
    )
    await asyncio.to_thread(postgres.wait_for, found, store._url.rpartition("/")[2])


@pytest.mark.parametrize("end", ["close", "abandon"])
async def test_a_store_that_was_closed_does_not_connect_again(postgres: Any, end: str) -> None:
    """A call apart that was under way was made once more, on a new connection."""
    store = await open_store(postgres.new_database())
    call, tried = await asleep(postgres, store)
    ended = getattr(store, end)()
    if ended is not None:
        await ended
    with pytest.raises(StorageFault, match="it is closed"):
        await call
    assert [each.closed for each in tried] == [True] and not store._apart


async def test_a_store_that_is_closed_while_it_connects_stays_closed(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(postgres.new_database())
    await store._drop()
    connect, made = psycopg.AsyncConnection.connect, []

    async def close_meanwhile(*given: Any, **more: Any) -> Any:
        made.append(await connect(*given, **more))
        await store.close()
        return made[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", close_meanwhile)
    with pytest.raises(StorageFault, match="it is closed"):
        await store.end()
    assert [each.closed for each in made] == [True]


async def test_a_call_apart_that_is_cancelled_leaves_nothing_open(postgres: Any) -> None:
    store = await open_store(postgres.new_database())
    call, tried = await asleep(postgres, store)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [each.closed for each in tried] == [True] and not store._apart
    await sleepers(postgres, store, 0)
    await store.close()


async def test_a_server_that_is_refused_is_refused_by_the_next_call_too(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover to one whose commits might not last."""
    store = await open_store(postgres.new_database())
    await store._drop()

    async def refuse(*_: Any) -> None:
        raise StorageFault("it is a standby")

    with monkeypatch.context() as failed_over:
        failed_over.setattr(postgres_store, "check_server", refuse)
        for _ in range(2):
            with pytest.raises(StorageFault, match="it is a standby"):
                await store.end()
    assert (await store.end()).end_offset == 0
    await store.close()
