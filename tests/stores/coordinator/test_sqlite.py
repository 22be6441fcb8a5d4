"""What only a file can do to a coordinator: be full, be locked, be shared by processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from coordinator_kit import CLUSTER, RIVER, batch, commit, make_river, placed, prepare

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.rows import CommitState, LogState, Wanted
from anabranch.stores import sqlite_file
from anabranch.stores.coordinator import sqlite, sqlite_tables
from anabranch.stores.coordinator.sqlite import SqliteCoordinator

WRITER = Path(__file__).with_name("writer.py")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "diskless.db")


@pytest.fixture
async def coordinator(path: str) -> AsyncIterator[SqliteCoordinator]:
    on = await SqliteCoordinator.open(path, CLUSTER)
    await make_river(on)
    yield on
    await on.close()


@contextmanager
def turn_taken(path: str) -> Iterator[None]:
    """As by a process that was stopped within its turn."""
    with Path(f"{path}.turn").open("rb+") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        yield


async def test_a_full_volume_is_said_and_nothing_is_half_done(
    coordinator: SqliteCoordinator,
) -> None:
    prepared = await prepare(coordinator)
    apart = [each for _ in range(300) for each in (batch(), batch(producer=4, sequence=9))]
    assert coordinator._connection is not None
    coordinator._connection.execute("PRAGMA max_page_count=1")  # SQLite takes the present count
    with pytest.raises(CoordinatorAway, match=r"full; free space on its volume"):
        await coordinator.commit(placed(prepared, *apart))
    assert await coordinator.states([RIVER]) == [LogState(0, 0)]
    assert (await coordinator.outcome(prepared.object_key)).state is CommitState.PENDING
    coordinator._connection.execute("PRAGMA max_page_count=100000")
    answer = await coordinator.commit(placed(prepared, *apart))
    assert answer.state is CommitState.COMMITTED


async def test_another_program_s_lock_is_said(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)
    again = await SqliteCoordinator.open(path, CLUSTER)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CoordinatorAway, match="another program has locked it"):
            await again.states([RIVER])
    assert await again.states([RIVER]) == [LogState(0, 0)]
    await again.close()


async def test_a_turn_that_does_not_come_is_away_and_the_commit_may_still_happen(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = await prepare(coordinator)
    monkeypatch.setattr(sqlite, "CALL_TIMEOUT_S", 0.1)
    with turn_taken(path):
        with pytest.raises(CoordinatorAway, match="a suspended process holds its lock"):
            await coordinator.commit(placed(prepared, batch(count=3)))
        with pytest.raises(CoordinatorAway):
            await coordinator.prepare(1, 7, 1000, 1)
    monkeypatch.setattr(sqlite, "CALL_TIMEOUT_S", 30)
    answer = await coordinator.outcome(prepared.object_key)
    assert (answer.state, len(answer.verdicts)) == (CommitState.COMMITTED, 1)
    following = await prepare(coordinator)
    assert following.object_id == prepared.object_id + 1, "what had not begun was never done"


async def test_a_listener_that_is_too_far_behind_is_told_so(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tables, "CHANGES_KEPT", 3)
    monkeypatch.setattr(sqlite_tables, "TRIMMED_EVERY", 1)
    other = await SqliteCoordinator.open(path, CLUSTER)
    async with aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        for _ in range(3):
            await commit(other, batch())
        heard = [change.state for change in await anext(changes)]
        assert heard == [LogState(0, end, 100 * end) for end in (1, 2, 3)]
        for _ in range(4):
            await commit(other, batch())
        with pytest.raises(CoordinatorAway, match="changes were missed"):
            await anext(changes)
    await other.close()


@pytest.mark.parametrize("order", ["ooo", "oaoa", "aoo", "ooaaoo", "oao"])
async def test_own_changes_are_heard_without_reading_and_others_in_order(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Commits of this process (o) and of another one (a): each is heard once, in order."""
    other = await SqliteCoordinator.open(path, CLUSTER)
    reads = []
    read = SqliteCoordinator._changes_after

    async def counted(self: SqliteCoordinator, after: int) -> Any:
        reads.append(after)
        return await read(self, after)

    monkeypatch.setattr(SqliteCoordinator, "_changes_after", counted)
    async with asyncio.timeout(30), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        for each in order:
            await commit(coordinator if each == "o" else other, batch())
        ends: list[int] = []
        while len(ends) < len(order):
            ends += [change.state.high_watermark for change in await anext(changes) if change.state]
            assert ends == list(range(1, len(ends) + 1))
        assert bool(reads) == ("a" in order)
    await other.close()


@pytest.mark.parametrize(("commits", "reads"), [(1, 1), (2, 1), (3, 2), (7, 3)])
async def test_a_listener_takes_one_turn_for_each_page_of_what_others_committed(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch,
    commits: int, reads: int,
) -> None:  # fmt: skip
    """Every turn holds up the commits of all brokers of the machine."""
    monkeypatch.setattr(sqlite, "PACKETS_READ", 3)
    other = await SqliteCoordinator.open(path, CLUSTER)
    made = []
    read = SqliteCoordinator._changes_after

    async def counted(self: SqliteCoordinator, after: int) -> Any:
        made.append(after)
        return await read(self, after)

    monkeypatch.setattr(SqliteCoordinator, "_changes_after", counted)
    async with asyncio.timeout(30), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        for _ in range(commits):
            await commit(other, batch())
        heard = 0
        while heard < commits:
            heard += len(await anext(changes))
        assert heard == commits
        await commit(coordinator, batch())  # heard without a turn, after whatever came before
        assert len(await anext(changes)) == 1
        assert len(made) == reads
    await other.close()


async def test_a_transaction_that_a_killed_process_left_hides_no_later_one(
    coordinator: SqliteCoordinator, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header has its number for a while; the next transaction gets the same one."""
    prepared = await prepare(coordinator)
    looked = asyncio.Event()
    run = coordinator._worker.run

    async def noted(*arguments: Any) -> Any:
        looked.set()
        return await run(*arguments)

    async with asyncio.timeout(30), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        monkeypatch.setattr(coordinator._worker, "run", noted)
        with turn_taken(path):
            before = coordinator._counter()
            write_counter(path, (int.from_bytes(before, "big") + 1).to_bytes(4, "big"))
            heard = asyncio.create_task(anext(changes))
            await looked.wait()
            later = asyncio.create_task(coordinator.commit(placed(prepared, batch())))
            await asyncio.sleep(0)
            write_counter(path, before)
        while coordinator._counter() == before:
            pass  # the loop stands still, so that the listener does not look in between
        await later
        told = await asyncio.wait([heard], timeout=10)
        assert told[0], "the listener was not told of the later one"
        assert [change.key for change in heard.result()] == [RIVER]


def write_counter(path: str, counter: bytes) -> None:
    with Path(path).open("rb+") as file:
        file.seek(sqlite.COUNTER_PLACE)
        file.write(counter)


async def test_processes_take_turns_without_hole_or_repeat(
    coordinator: SqliteCoordinator, path: str
) -> None:
    """The slowest of three commits at least half as often as the fastest."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, WRITER, path, str(broker), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for broker in (2, 3, 4)
    ]
    for each in processes:
        assert each.stdout is not None and each.stdin is not None
        assert await each.stdout.readline() == b"ready\n"
    for each in processes:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
    got = [json.loads((await each.communicate())[0]) for each in processes]
    assert sorted(offset for offsets in got for offset in offsets) == list(
        range(sum(map(len, got)))
    )
    assert min(map(len, got)) * 2 >= max(map(len, got))
    (found,) = await coordinator.find([Wanted(RIVER, 0, 1 << 30)])
    assert found.state is not None
    assert found.state.high_watermark == sum(map(len, got))


async def test_what_was_committed_is_there_after_a_process_was_killed(
    coordinator: SqliteCoordinator, path: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, WRITER, path, "2", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    await process.stdout.readline()
    async with asyncio.timeout(20), aclosing(coordinator.changes()) as changes:
        assert await anext(changes) == []
        process.stdin.write(b"go\n")
        heard = [change for _ in range(3) for change in await anext(changes)]
        process.kill()
        await process.wait()
    end = heard[-1].state
    (now,) = await coordinator.states([RIVER])
    assert end is not None and now is not None
    assert now.high_watermark >= end.high_watermark > 0
    answer = await commit(coordinator, batch())
    assert answer.verdicts[0].base_offset == now.high_watermark
