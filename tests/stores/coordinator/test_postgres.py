"""What only a server can do to a coordinator: lose a connection, end, be locked by others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from random import Random
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from coordinator_kit import (
    BROKER,
    CLUSTER,
    EPOCH,
    RIVER,
    TOPICS,
    batch,
    commit,
    make_river,
    placed,
    prepare,
)

from anabranch.core.diskless.coordinator import CoordinatorAway, OlderCopy
from anabranch.core.diskless.rows import (
    Commit,
    CommitState,
    Committed,
    LogKey,
    LogState,
    NewLogs,
    Wanted,
)
from anabranch.stores.coordinator import postgres as engine
from anabranch.stores.coordinator.postgres import PostgresCoordinator


class Relay:
    """A way to the server that is cut at the next COMMIT: before it arrives, or when it is done."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self.cut: str | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        place = f"{self._to.username}:{self._to.password}@127.0.0.1:{port}"
        return f"postgresql://{place}{self._to.path}"

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, asks: asyncio.StreamReader, told: asyncio.StreamWriter) -> None:
        assert self._to.hostname is not None
        answers, onward = await asyncio.open_connection(self._to.hostname, self._to.port)
        ends = (told, onward)
        self._tasks += (
            asyncio.create_task(self._pass(asks, onward, ends, is_client=True)),
            asyncio.create_task(self._pass(answers, told, ends, is_client=False)),
        )

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        *,
        is_client: bool,
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                if not is_client and self.cut == "done":
                    self.cut = None
                    break
                if is_client and self.cut is not None and b"COMMIT" in chunk:
                    self.cut = {"before": None, "after": "done"}[self.cut]
                    if self.cut is None:
                        break
                writer.write(chunk)
        for end in ends:
            end.transport.abort()


@pytest.fixture
async def relay(empty_database: str) -> AsyncIterator[Relay]:
    made = Relay(empty_database)
    yield made
    await made.close()


@pytest.fixture
async def coordinator(empty_database: str) -> AsyncIterator[PostgresCoordinator]:
    on = await PostgresCoordinator.open(empty_database, CLUSTER)
    await make_river(on)
    yield on
    await on.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_outcome_of_a_commit_without_an_answer_is_told(
    coordinator: PostgresCoordinator, relay: Relay, when: str
) -> None:
    cut_off = await PostgresCoordinator.open(await relay.open(), CLUSTER)
    await coordinator.register(2, 1)
    prepared = await prepare(cut_off, broker=2, epoch=1)
    relay.cut = when
    wanted = placed(prepared, batch(producer=4, sequence=0), batch(), broker=2, epoch=1)
    with pytest.raises(CoordinatorAway):
        await cut_off.commit(wanted)
    if when == "before":
        assert (await cut_off.outcome(prepared.object_key)).state is CommitState.PENDING
        await cut_off.refuse([prepared.object_id])
    answer = await cut_off.outcome(prepared.object_key)
    assert [each.base_offset for each in answer.verdicts] == ([0, 1] if when == "after" else [])
    expected = CommitState.COMMITTED if when == "after" else CommitState.REFUSED
    assert answer.state is expected
    assert await coordinator.states([RIVER]) == [
        LogState(0, 2, 200) if when == "after" else LogState(0, 0)
    ]
    await cut_off.close()


ROUNDS = 12
PARTITIONS = [LogKey(TOPICS[0], number) for number in range(3)]


async def committed(on: PostgresCoordinator, wanted: Commit) -> Committed:
    """What a broker does: ask what became of a commit without an answer, repeat what never was."""
    answer = None
    while answer is None or answer.state is CommitState.PENDING:
        try:
            answer = await on.commit(wanted)
        except CoordinatorAway:
            answer = None
        while answer is None:
            with suppress(CoordinatorAway):
                answer = await on.outcome(wanted.object_key)
    return answer


async def shorten(on: PostgresCoordinator) -> None:
    """What retention and garbage rounds do meanwhile, to what is committed and still prepared."""
    while True:
        for key in reversed(PARTITIONS):
            await on.expire(key, older_than_ms=-1, most_bytes=700, most_runs=5)
            await on.delete_before([(key, 2), (PARTITIONS[0], 3)])
        while await on.mark_expired(3):
            pass
        await on.forget_producers(60_000, 5)


async def test_brokers_that_commit_at_once_and_lose_connections_get_each_offset_once(
    coordinator: PostgresCoordinator, relay: Relay, empty_database: str
) -> None:
    """Three brokers, one of which loses its connection at commits, before or after they are done;
    partitions in any order; a producer that sends each batch through two brokers at once."""
    random, url = Random(17), await relay.open()
    await coordinator.create_logs(1, [NewLogs(TOPICS[0], "river", 0, 3)])
    brokers = [await PostgresCoordinator.open(each, CLUSTER) for each in (empty_database,) * 2]
    brokers.append(await PostgresCoordinator.open(url, CLUSTER))
    upkeep = asyncio.create_task(shorten(coordinator))
    stored: dict[LogKey, list[int]] = {key: [] for key in PARTITIONS}
    firsts: list[int] = []
    for sequence in range(ROUNDS):
        commits = []
        for number, on in enumerate(brokers, start=10):
            await on.register(number, 1)
            prepared = await prepare(on, broker=number, epoch=1)
            batches = [batch(key) for key in PARTITIONS]
            if number != 11:
                batches.append(batch(RIVER, producer=9, sequence=sequence))
            random.shuffle(batches)
            commits.append(placed(prepared, *batches, broker=number, epoch=1))
        relay.cut = random.choice([None, "before", "after"])
        answers = await asyncio.gather(*map(committed, brokers, commits))
        relay.cut = None
        twice = set()
        for wanted, answer in zip(commits, answers, strict=True):
            assert answer.state is CommitState.COMMITTED
            for each, verdict in zip(wanted.batches, answer.verdicts, strict=True):
                if each.producer_id == 9:
                    twice.add(verdict.base_offset)
                if not verdict.is_duplicate:
                    stored[each.key].append(verdict.base_offset)
        assert len(twice) == 1, "one batch has one offset, through whichever broker"
        firsts += twice
    upkeep.cancel()
    await asyncio.gather(upkeep, return_exceptions=True)
    expected = {key: 3 * ROUNDS + ROUNDS * (key == RIVER) for key in PARTITIONS}
    assert {key: sorted(each) for key, each in stored.items()} == {
        key: list(range(count)) for key, count in expected.items()
    }
    assert firsts == sorted(firsts)
    for key, count in expected.items():
        (state,) = await coordinator.states([key])
        assert state is not None and (state.high_watermark, state.start_offset > 0) == (count, True)
        (found,) = await coordinator.find([Wanted(key, state.start_offset, 1 << 30)])
        ends = [state.start_offset, *(run.end_offset for run in found.runs)]
        assert [run.base_offset for run in found.runs] == ends[:-1] and ends[-1] == count
    for each in brokers:
        await each.close()


async def test_partitions_are_locked_in_order_whatever_the_order_of_batches(
    coordinator: PostgresCoordinator, empty_database: str
) -> None:
    """Two that lock in different orders could wait for each other."""
    keys = [LogKey(TOPICS[0], number) for number in range(2)]
    with psycopg.connect(empty_database) as holds:
        holds.execute("SET search_path = anabranch_diskless")
        holds.execute("SELECT 1 FROM logs WHERE partition = 0 FOR UPDATE")
        backwards = placed(await prepare(coordinator), batch(keys[1]), batch(keys[0]))
        waiting = asyncio.create_task(coordinator.commit(backwards))
        await until_somebody_waits(empty_database)
        free = holds.execute("SELECT 1 FROM logs WHERE partition = 1 FOR UPDATE SKIP LOCKED")
        assert free.fetchone() == (1,), "nothing is held by who waits for the first"
    assert (await waiting).state is CommitState.COMMITTED


@pytest.mark.parametrize("whose", ["its own", "another's"])
async def test_tables_that_are_loaded_again_over_open_connections_take_no_commit(
    coordinator: PostgresCoordinator, empty_database: str, whose: str
) -> None:
    """Nothing that listens has ended, and no connection is new: the object was prepared before the
    copy was made, and its commit would give the offsets of the commit that is lost."""
    waiting = placed(await prepare(coordinator), batch())
    tables = ("wal_objects", "logs", "runs", "producers")
    with psycopg.connect(empty_database, autocommit=True) as on:
        on.execute("SET search_path = anabranch_diskless")
        for table in tables:
            on.execute(f"CREATE TABLE copy_of_{table} AS SELECT * FROM {table}".encode())
        lost = await commit(coordinator, batch())
        assert lost.state is CommitState.COMMITTED
        if whose == "another's":
            coordinator.known._heard, coordinator.known._own = coordinator.known._own, -1
        for table in tables:
            on.execute(f"TRUNCATE {table} CASCADE".encode())
            on.execute(f"INSERT INTO {table} SELECT * FROM copy_of_{table}".encode())
        numbers = "pg_get_serial_sequence('wal_objects', 'object_id')"
        on.execute(f"SELECT setval({numbers}, %s)".encode(), (waiting.object_id,))
        with pytest.raises(OlderCopy):
            await coordinator.commit(waiting)
        assert on.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    with pytest.raises(OlderCopy):
        await coordinator.commit(waiting)


async def until_somebody_waits(url: str) -> None:
    async with asyncio.timeout(20):
        while True:
            with psycopg.connect(url, autocommit=True) as connection:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND datname = current_database()"
                ).fetchone()
            if row and row[0]:
                return
            await asyncio.sleep(0.01)


async def test_what_the_server_rolled_back_is_tried_again(
    coordinator: PostgresCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def deadlocked_once(tables: Any) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return "done"

    assert await coordinator.call(engine.Lane.WRITE, deadlocked_once) == "done"
    calls.clear()

    def lost(tables: Any) -> str:
        calls.append(1)
        raise psycopg.OperationalError("the connection is lost")

    with pytest.raises(CoordinatorAway):
        await coordinator.call(engine.Lane.WRITE, lost)
    assert len(calls) == 1, "what may have been done is not done again"


async def test_a_call_that_takes_too_long_is_cut_off(
    coordinator: PostgresCoordinator, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = await prepare(coordinator)
    monkeypatch.setattr(engine, "CALL_TIMEOUT_S", 0.3)
    with psycopg.connect(empty_database) as holds:
        holds.execute("SET search_path = anabranch_diskless")
        holds.execute("SELECT 1 FROM logs FOR UPDATE")
        with pytest.raises(CoordinatorAway, match="no answer within"):
            await coordinator.commit(placed(prepared, batch()))
        monkeypatch.setattr(engine, "CALL_TIMEOUT_S", 30)
        assert await coordinator.states([RIVER]) == [LogState(0, 0)], "readers go on"
    assert (await commit(coordinator, batch())).state is CommitState.COMMITTED


async def test_a_server_that_only_reads_is_left_and_a_call_that_waits_cuts_no_other(
    coordinator: PostgresCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(tables: Any) -> None:
        tables.connection.execute("SET default_transaction_read_only = on")

    await coordinator.call(engine.Lane.WRITE, read_only)
    with pytest.raises(CoordinatorAway, match="read-only"):
        await prepare(coordinator)
    prepared = await prepare(coordinator)

    started, goes_on = threading.Event(), threading.Event()

    def slow(tables: Any) -> Any:
        started.set()
        assert goes_on.wait(20)
        return tables.states([RIVER])

    under_way = asyncio.create_task(coordinator.call(engine.Lane.WRITE, slow))
    await asyncio.to_thread(started.wait)
    monkeypatch.setattr(engine, "CALL_TIMEOUT_S", 0.01)
    with pytest.raises(CoordinatorAway, match="no answer within"):
        await coordinator.commit(placed(prepared, batch()))
    goes_on.set()
    assert await under_way == [LogState(0, 0)]


@pytest.mark.parametrize("payload", ["", "hello", "aGVsbG8=", "gICAgA=="])
async def test_a_notification_of_something_else_is_said_and_ends_listening(
    coordinator: PostgresCoordinator, empty_database: str, payload: str
) -> None:
    """Anybody may notify; the changes that are asked for anew are all there are."""
    async with asyncio.timeout(60), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        with psycopg.connect(empty_database, autocommit=True) as on:
            on.execute("SELECT pg_notify('anabranch_diskless', %s)", (payload,))
        with pytest.raises(CoordinatorAway, match="is not Anabranch's"):
            await anext(changes)


async def test_a_server_that_ends_ends_listening_and_comes_back(
    coordinator: PostgresCoordinator, postgres: Any
) -> None:
    async with asyncio.timeout(60), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        await commit(coordinator, batch())
        assert (await anext(changes))[0].state == LogState(0, 1, 100)
        await asyncio.to_thread(postgres.stop, at_once=True)
        with pytest.raises(CoordinatorAway):
            await anext(changes)
        with pytest.raises(CoordinatorAway):
            await coordinator.prepare(BROKER, EPOCH, 1, 1000)
        await asyncio.to_thread(postgres.start)
        assert await coordinator.states([RIVER]) == [LogState(0, 1, 100)]
        assert (await commit(coordinator, batch())).verdicts[0].base_offset == 1
