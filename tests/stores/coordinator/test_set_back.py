"""A database that is set back while nodes use it gets no further call, by whatever way it came."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from coordinator_kit import (
    BROKER,
    CLUSTER,
    EPOCH,
    LEASE_MS,
    RIVER,
    TOPICS,
    batch,
    commit,
    make_river,
    placed,
    prepare,
)

from anabranch.core.diskless.coordinator import CoordinatorAway, OlderCopy
from anabranch.core.diskless.rows import VERDICTS_KEPT_MS, Commit, LogState, NewLogs, Wanted
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.postgres import PostgresCoordinator
from anabranch.stores.coordinator.sqlite import SqliteCoordinator

Calls = dict[str, Callable[[Front, Commit], Awaitable[Any]]]
CALLS: Calls = {
    "take_control": lambda on, _: on.take_control(2),
    "topics": lambda on, _: on.topics(ZERO_TOPIC_ID, 9),
    "create_logs": lambda on, _: on.create_logs(1, [NewLogs(TOPICS[1], "lake", 0, 1)]),
    "delete_topics": lambda on, _: on.delete_topics(1, [TOPICS[0]]),
    "register": lambda on, _: on.register(BROKER, EPOCH + 1),
    "prepare": lambda on, _: on.prepare(BROKER, EPOCH, 1, LEASE_MS),
    "commit": lambda on, wanted: on.commit(wanted),
    "outcome": lambda on, wanted: on.outcome(wanted.object_key),
    "refuse": lambda on, wanted: on.refuse([wanted.object_id]),
    "states": lambda on, _: on.states([RIVER]),
    "find": lambda on, _: on.find([Wanted(RIVER, 0, 1)]),
    "by_time": lambda on, _: on.by_time(RIVER, 0),
    "newest": lambda on, _: on.newest(RIVER),
    "delete_before": lambda on, _: on.delete_before([(RIVER, 1)]),
    "expire": lambda on, _: on.expire(RIVER, older_than_ms=-1, most_bytes=0, most_runs=9),
    "mark_expired": lambda on, _: on.mark_expired(9),
    "forget_producers": lambda on, _: on.forget_producers(0, 9),
    "to_delete": lambda on, _: on.to_delete(0, 9),
    "count_to_delete": lambda on, _: on.count_to_delete(0, 9),
    "deleted": lambda on, wanted: on.deleted([wanted.object_id]),
    "unknown": lambda on, wanted: on.unknown([wanted.object_key]),
}


class File:
    """A coordinator's file, and how it is set back."""

    def __init__(self, path: Path, how: str) -> None:
        self.path, self.how = path, how

    async def open(self) -> Front:
        return await SqliteCoordinator.open(str(self.path), CLUSTER)

    def keep(self) -> Path:
        kept = self.path.with_suffix(".kept")
        with closing(sqlite3.connect(self.path)) as here, closing(sqlite3.connect(kept)) as there:
            here.backup(there)
        return kept

    def put_back(self, kept: Path) -> None:
        if self.how == "written over":
            self.path.write_bytes(kept.read_bytes())
        elif self.how == "another file":
            os.replace(kept, self.path)
        else:
            with closing(sqlite3.connect(kept)) as there, closing(sqlite3.connect(self.path)) as on:
                there.backup(on)

    def dump(self) -> Any:
        with closing(sqlite3.connect(self.path)) as on:
            return list(on.iterdump())


class Server:
    """A coordinator's database; connections end when it is set back, as with a standby."""

    SEQUENCE = "anabranch_diskless.wal_objects_object_id_seq"

    def __init__(self, url: str, how: str) -> None:
        self.url, self.how = url, how

    async def open(self) -> Front:
        return await PostgresCoordinator.open(self.url, CLUSTER)

    def keep(self) -> dict[str, Any]:
        with psycopg.connect(self.url) as on:
            named = "SELECT tablename FROM pg_tables WHERE schemaname = 'anabranch_diskless'"
            tables = [name for (name,) in on.execute(named).fetchall()]
            kept: dict[str, Any] = {
                name: on.execute(f"SELECT * FROM anabranch_diskless.{name}".encode()).fetchall()
                for name in tables
            }
            if tables:
                (last,) = on.execute(f"SELECT last_value FROM {self.SEQUENCE}".encode()).fetchall()
                kept[""] = last[0]
            return kept

    dump = keep

    def put_back(self, kept: dict[str, Any]) -> None:
        with psycopg.connect(self.url) as on:
            if self.how == "made anew":
                on.execute("DROP SCHEMA anabranch_diskless CASCADE")
            else:
                on.execute(f"SELECT setval('{self.SEQUENCE}', {kept[''] or 1})".encode())
                for name in kept.keys() - {""}:
                    on.execute(f"TRUNCATE anabranch_diskless.{name}".encode())
                    for row in kept[name]:
                        places = ", ".join(["%s"] * len(row))
                        query = f"INSERT INTO anabranch_diskless.{name} VALUES ({places})"
                        on.execute(query.encode(), row)
        self.end_connections()

    def end_connections(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as on:
            on.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


FILES = ("written over", "another file", "restored")
SERVERS = ("a standby", "made anew")


@pytest.fixture(params=(*FILES, *SERVERS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> File | Server:
    if request.param in FILES:
        return File(tmp_path / "order.db", request.param)
    return Server(request.getfixturevalue("empty_database"), request.param)


@pytest.fixture
async def opened(place: File | Server) -> AsyncIterator[list[Front]]:
    both = [await place.open() for _ in range(2)]
    yield both
    for each in both:
        each.abandon()
        await each.close()


async def until_heard(on: Front, end_offset: int, act: Awaitable[Any]) -> None:
    """Listen while something is done, until its change is told."""
    async with asyncio.timeout(20), aclosing(on.changes()) as changes:
        assert await anext(changes) == []
        await act
        async for told in changes:
            if any(each.state and each.state.high_watermark == end_offset for each in told):
                return


async def refused(call: Callable[[], Awaitable[Any]]) -> None:
    """The call is refused; before that, connections may be found to be lost."""
    for _ in range(3):
        with suppress(CoordinatorAway):
            with pytest.raises(OlderCopy, match="anabranch diskless restore"):
                await call()
            return
    raise AssertionError("it is only away")


@pytest.mark.parametrize("whose", ["its own", "another's"])
async def test_what_was_set_back_gets_no_call_from_a_node_that_knows_a_later_commit(
    place: Any, opened: list[Front], whose: str
) -> None:
    one, two = opened
    await make_river(one)
    await two.register(2, 1)
    stock = await one.prepare(BROKER, EPOCH, 4, LEASE_MS)
    [other] = await two.prepare(2, 1, 1, LEASE_MS)
    await one.commit(placed(stock.pop(), batch()))
    kept = place.keep()
    later = placed(stock.pop(), batch()), placed(other, batch(), broker=2, epoch=1)
    if whose == "its own":
        await one.commit(later[0])
    else:
        await until_heard(one, 2, two.commit(later[1]))
    place.put_back(kept)
    before = place.dump()
    for name, call in CALLS.items():
        one._wrong = None  # each by itself
        wanted = placed(stock[0], batch())
        await refused(lambda call=call, wanted=wanted: call(one, wanted))  # type: ignore[misc]
        assert place.dump() == before, name
    with pytest.raises(OlderCopy):
        one.check_usable()


async def test_a_file_that_is_gone_is_away_until_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "order.db"
    on = await SqliteCoordinator.open(str(path), CLUSTER)
    await make_river(on)
    wanted = placed(await prepare(on), batch())
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(CoordinatorAway, match="put it back"):
        await on.commit(wanted)
    assert not path.exists()
    (tmp_path / "elsewhere.db").rename(path)
    assert (await on.commit(wanted)).verdicts[0].base_offset == 0
    await on.close()


async def test_a_commit_of_which_nothing_is_left_is_no_reason(empty_database: str) -> None:
    """Its object was deleted and its verdicts forgotten before the connections ended."""
    database = Server(empty_database, "a standby")
    on = await database.open()
    await make_river(on)
    await commit(on, batch())
    await on.delete_topics(1, [TOPICS[0]])
    with psycopg.connect(empty_database) as past:
        while await on.mark_expired(99):
            pass
        await on.deleted([number for number, _ in await on.to_delete(0, 99)])
        past.execute(
            f"UPDATE anabranch_diskless.wal_objects SET committed_ms = 0 - {VERDICTS_KEPT_MS}".encode()
        )
        past.commit()
    while await on.mark_expired(99):
        pass
    assert await on.unknown(["x"]) == ["x"]
    database.end_connections()
    assert await on.states([RIVER]) == [None]
    await on.close()


@pytest.mark.slow
async def test_numbers_that_were_given_are_exactly_known_after_a_server_was_killed(
    empty_database: str, postgres: Any
) -> None:
    """What it skipped could not be told from what it has forgotten."""
    on = await PostgresCoordinator.open(empty_database, CLUSTER)
    await make_river(on)
    given = [(await prepare(on)).object_id for _ in range(3)]
    await asyncio.to_thread(postgres.stop, at_once=True)
    await asyncio.to_thread(postgres.start)
    assert await on.last_id() == given[-1]
    assert (await on.states([RIVER])) == [LogState(0, 0)]
    async with asyncio.timeout(20):
        while True:
            with suppress(CoordinatorAway):
                assert (await prepare(on)).object_id == given[-1] + 1
                break
    await on.close()
