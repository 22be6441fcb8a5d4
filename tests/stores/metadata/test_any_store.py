"""What every metadata store must do: the same tests for each engine."""

import asyncio
import itertools
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.metadata.store import (
    Committed,
    Deposed,
    Lease,
    MetadataStore,
    Snapshot,
    StoredBatch,
    StoreEnd,
    Unknown,
)
from anabranch.stores.metadata.engines import open_store

ENGINES = ("sqlite", "postgres")


def batch(first: int, end: int, epoch: int = 1) -> StoredBatch:
    return StoredBatch(first, end, epoch, b"batch %d" % first)


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").new_database())
    return f"sqlite://{tmp_path}/metadata.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[MetadataStore]:
    opened = await open_store(url)
    yield opened
    await opened.close()


async def first_lease(store: MetadataStore, holder: int = 1) -> Lease:
    lease = await store.take_lease(await store.lease(), holder, f"node-{holder}", "here:1")
    assert lease is not None
    return lease


async def test_an_append_at_the_end_under_the_lease_is_committed(store: MetadataStore) -> None:
    lease = await first_lease(store)
    assert await store.append(lease, 0, [batch(0, 1), batch(1, 4)]) == Committed(4)
    assert await store.end() == StoreEnd(0, 4, 1)
    assert await store.read(0, 1 << 20) == [batch(0, 1), batch(1, 4)]
    assert await store.read(2, 1) == [batch(1, 4)]
    assert await store.read(4, 1) == []


async def test_an_append_elsewhere_than_at_the_end_is_refused(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.append(lease, 0, [batch(0, 3)])
    assert await store.append(lease, 0, [batch(0, 1)]) == Deposed(lease.epoch, 3)
    assert await store.append(lease, 5, [batch(5, 6)]) == Deposed(lease.epoch, 3)
    assert (await store.end()).end_offset == 3


async def test_an_append_of_a_deposed_controller_is_refused_for_ever(store: MetadataStore) -> None:
    old = await first_lease(store, 1)
    new = await store.take_lease(await store.lease(), 2, "node-2", "there:1")
    assert new is not None and new.epoch == old.epoch + 1
    assert isinstance(await store.append(old, 0, [batch(0, 1)]), Deposed)
    assert await store.renew_lease(old) is None
    assert isinstance(await store.append(new, 0, [batch(0, 1)]), Committed)


async def test_a_lease_is_taken_only_as_it_was_seen(store: MetadataStore) -> None:
    lease = await first_lease(store)
    renewed = await store.renew_lease(lease)
    assert renewed is not None and renewed.beat == lease.beat + 1
    assert await store.take_lease(lease, 2, "node-2", "there:1") is None
    assert await store.take_lease(renewed, 2, "node-2", "there:1") is not None


async def test_a_released_lease_keeps_its_epoch_used(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.release_lease(lease)
    assert isinstance(await store.append(lease, 0, [batch(0, 1)]), Deposed)
    assert isinstance(
        await store.append(replace(lease, epoch=lease.epoch + 1), 0, [batch(0, 1)]), Deposed
    )
    assert (await first_lease(store, 2)).epoch == lease.epoch + 1


async def test_a_snapshot_lets_go_of_the_log_before_it(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.append(lease, 0, [batch(0, 2), batch(2, 5), batch(5, 6)])
    await store.save_snapshot(Snapshot(5, 1, b"state"), keep_log_from=2)
    assert await store.load_snapshot() == Snapshot(5, 1, b"state")
    assert await store.end() == StoreEnd(2, 6, 1)
    await store.save_snapshot(Snapshot(3, 1, b"older"), keep_log_from=3)
    assert await store.load_snapshot() == Snapshot(5, 1, b"state")


async def test_what_was_committed_is_there_after_reopening(url: str) -> None:
    first = await open_store(url)
    assert await first.cluster_id("one") == "one"
    lease = await first_lease(first)
    await first.append(lease, 0, [batch(0, 1)])
    await first.close()
    again = await open_store(url)
    assert await again.cluster_id("two") == "one"
    assert await again.read(0, 1) == [batch(0, 1)]
    assert await again.lease() == lease
    await again.close()


async def test_a_closed_store_cannot_say(store: MetadataStore, url: str) -> None:
    other = await open_store(url)
    lease = await first_lease(other)
    await store.close()
    await other.close()
    reopened = await open_store(url)
    await reopened.close()
    try:
        answer = await reopened.append(lease, 0, [batch(0, 1)])
    except RuntimeError:
        return
    assert isinstance(answer, Unknown)


async def test_a_restore_refuses_a_longer_store(store: MetadataStore) -> None:
    await store.cluster_id("one")
    lease = await first_lease(store)
    await store.append(lease, 0, [batch(0, 3)])
    with pytest.raises(StorageFault, match="ends at offset 3, the copy only at 1"):
        await store.restore("one", None, [batch(0, 1)])
    with pytest.raises(StorageFault, match="belongs to cluster one"):
        await store.restore("two", None, [batch(0, 9)])
    await store.restore("one", Snapshot(4, 2, b"state"), [batch(4, 6, 3)])
    assert await store.end() == StoreEnd(4, 6, 3)
    assert (await first_lease(store, 2)).epoch == 4


@pytest.mark.parametrize(
    ("snapshot", "batches"),
    [
        (None, [batch(0, 3), batch(3, 9, 1)]),
        (None, [batch(0, 9)]),
        (Snapshot(5, 1, b"state"), [batch(5, 9, 1)]),
    ],
)
async def test_a_restore_refuses_a_store_that_went_on_otherwise_than_the_copy(
    store: MetadataStore, snapshot: Snapshot | None, batches: list[StoredBatch]
) -> None:
    """As after a restore of a shorter copy: what was committed since is not in the longer one."""
    await store.restore("one", None, [batch(0, 3)])
    lease = await first_lease(store, 2)
    assert isinstance(await store.append(lease, 3, [batch(3, 5, 2)]), Committed)
    with pytest.raises(StorageFault, match="has other records before offset 5 than the copy"):
        await store.restore("one", snapshot, batches)
    assert await store.end() == StoreEnd(0, 5, 2)
    await store.restore("one", None, [batch(0, 3), batch(3, 5, 2), batch(5, 6, 2)])
    await store.restore("one", Snapshot(6, 2, b"state"), [batch(6, 7, 2)])
    await store.restore("one", Snapshot(7, 2, b"state"), [])
    await store.restore("one", Snapshot(8, 2, b"state"), [])
    assert await store.end() == StoreEnd(8, 8, 2)


async def test_two_processes_race_for_the_lease(store: MetadataStore, url: str) -> None:
    """Offsets stay dense, epochs never go back, and both processes' counts add up."""
    script = str(Path(__file__).with_name("racer.py"))
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable, script, url, holder, "60", stdout=asyncio.subprocess.PIPE
        )
        for holder in ("1", "2")
    ]
    outputs = [(await racer.communicate())[0] for racer in racers]
    counts = [int(output) for output in outputs]
    batches = await store.read(0, 1 << 20)
    assert len(batches) == sum(counts) > 0
    assert [each.first_offset for each in batches] == list(range(len(batches)))
    epochs = [each.epoch for each in batches]
    assert epochs == sorted(set(epochs))


class Backups:
    """What an administrator does to a store behind its back: copies of it, put in place again."""

    def __init__(self, url: str) -> None:
        self.url = url

    def take(self) -> dict[str, list[tuple[object, ...]]]:
        """All rows."""
        return {table: self._rows(f"SELECT * FROM {table}") for table in self._tables}

    def put_back(self, backup: dict[str, list[tuple[object, ...]]]) -> None:
        """All rows as they were."""
        for table, rows in backup.items():
            self._rows(f"DELETE FROM {table}")
            for row in rows:
                self._rows(
                    f"INSERT INTO {table} VALUES ({', '.join([self._hole] * len(row))})", row
                )

    @property
    def _is_postgres(self) -> bool:
        return self.url.startswith("postgresql")

    @property
    def _tables(self) -> list[str]:
        schema = "anabranch." if self._is_postgres else ""
        return [f"{schema}{table}" for table in ("log", "snapshot", "lease")]

    @property
    def _hole(self) -> str:
        return "%s" if self._is_postgres else "?"

    def _rows(self, query: str, row: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        if self._is_postgres:
            with psycopg.connect(self.url, autocommit=True) as on:
                cursor = on.execute(query.encode(), row)
                return cursor.fetchall() if cursor.description else []
        with closing(sqlite3.connect(self.url.removeprefix("sqlite://"))) as file, file:
            return file.execute(query, row).fetchall()


class Controllers:
    """Two processes on one store, each of which believes what it was last answered."""

    def __init__(self, store: MetadataStore, backups: Backups) -> None:
        self.store = store
        self.backups = backups
        self.kept = backups.take()
        self.tenures: dict[int, tuple[Lease, int]] = {}
        """Process -> its lease, and where it takes the log to end."""
        self.appended: dict[int, set[str]] = defaultdict(set)
        """Epoch -> who appended under it since the store was last put back."""

    async def do(self, step: str) -> None:
        """One step: "take 1", "append 2", or "put back", to where the test began."""
        verb, _, number = step.rpartition(" ")
        if step == "put back":
            self.backups.put_back(self.kept)
            self.appended.clear()
        elif verb == "take":
            await self.take(int(number))
        elif int(number) in self.tenures:
            await self.append(int(number))

    async def take(self, number: int) -> None:
        """Take the lease from whoever has it, and read the log."""
        lease = await self.store.take_lease(await self.store.lease(), number, f"f/{number}", "")
        assert lease is not None
        self.tenures[number] = lease, (await self.store.end()).end_offset

    async def append(self, number: int) -> None:
        """One batch more; who is deposed knows it from then on."""
        lease, end = self.tenures[number]
        answer = await self.store.append(lease, end, [batch(end, end + 1, lease.epoch)])
        if isinstance(answer, Committed):
            self.tenures[number] = lease, answer.end_offset
            self.appended[lease.epoch].add(f"{number}: {lease.incarnation}")
        else:
            del self.tenures[number]


STEPS = ("take 1", "take 2", "append 1", "append 2", "put back")


@pytest.mark.slow
async def test_no_backup_lets_two_append_under_one_epoch(store: MetadataStore, url: str) -> None:
    """Every sequence of three steps between two controllers: a store that is put back gives an epoch
    again, and who had it before must not append beside who has it now."""
    backups = Backups(url)
    await store.append(await first_lease(store), 0, [batch(0, 1)])
    begin = backups.take()
    sequences = [
        each
        for each in itertools.product(STEPS, repeat=3)
        if "put back" in each and any(step.startswith("append") for step in each)
    ]
    for sequence in sequences:
        backups.put_back(begin)
        controllers = Controllers(store, backups)
        for step in ("take 1", "append 1", *sequence, "append 1", "append 2", "append 1"):
            await controllers.do(step)
        for epoch, tenures in controllers.appended.items():
            assert len(tenures) == 1, (sequence, epoch, tenures)
