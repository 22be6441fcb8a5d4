"""Garbage rounds on a real store and a real coordinator: what goes, what stays, what is undone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stores.objects.stored_kit import CLUSTER, RIVER, Writer, new_writer, until

from anabranch.core.diskless import garbage_rounds
from anabranch.core.diskless.garbage import GarbageRounds, Pace
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.server.diskless.garbage_collector import Collector
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.engines import open_objects

PACE = Pace(round_ms=20, grace_ms=1000, retry_ms=5, list_ms=20, orphan_ms=5000)
LONG_AGO_S = 6.0


class Clock:
    now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Place:
    folder: Path
    writer: Writer
    clock: Clock
    collector: Collector

    async def keys(self) -> list[str]:
        return [
            each.key async for page in self.writer.store.list(f"{CLUSTER}/wal/") for each in page
        ]

    def age(self, key: str) -> None:
        held = os.stat(self.folder / key)
        os.utime(self.folder / key, (held.st_atime, held.st_mtime - LONG_AGO_S))


@pytest.fixture
async def place(tmp_path):
    folder, clock = tmp_path / "objects", Clock()
    folder.mkdir()
    store = await open_objects(f"file://{folder}")
    coordinator = await SqliteCoordinator.open(str(tmp_path / "diskless.db"), CLUSTER, clock=clock)
    writer = await new_writer(store, coordinator)
    yield Place(folder, writer, clock, Collector(coordinator, store, CLUSTER, GarbageRounds(PACE)))
    await store.close()
    await coordinator.close()


@pytest.mark.slow
async def test_an_object_of_a_dead_broker_goes_after_its_lease_and_the_grace(place):
    kept = await place.writer.write((RIVER, 1))
    left = (await place.writer.put((RIVER, 1))).object_key
    for passed_ms in (0, 59_000, 1_500):  # the lease is over, the grace is not
        place.clock.now_ms += passed_ms
        await place.collector.collect()
        assert left in await place.keys()
    place.clock.now_ms += PACE.grace_ms
    await place.collector.collect()
    assert await place.keys() == [kept]
    assert place.collector.rounds.deleted_objects == 1
    assert await place.writer.coordinator.unknown([left]) == [left]


async def test_an_object_without_rows_goes_after_the_grace(place):
    first = await place.writer.write((RIVER, 1))
    second = await place.writer.write((RIVER, 1))
    await place.writer.coordinator.delete_before([(RIVER, 1)])
    await place.collector.collect()
    assert sorted(await place.keys()) == sorted([first, second])
    place.clock.now_ms += PACE.grace_ms
    await place.collector.collect()
    assert await place.keys() == [second]


async def test_what_a_living_broker_has_prepared_is_never_deleted(place):
    commit = await place.writer.put((RIVER, 2))
    place.age(commit.object_key)
    await place.collector.sweep()
    place.clock.now_ms += 59_000
    await place.collector.collect()
    assert await place.keys() == [commit.object_key]
    assert (await place.writer.coordinator.commit(commit)).verdicts[0].base_offset == 0


async def test_an_old_object_that_nobody_knows_goes_when_this_database_named_it(place):
    orphan = (await place.writer.put((RIVER, 1))).object_key
    young = (await place.writer.put((RIVER, 1))).object_key
    foreign = orphan.rpartition("-")[0] + "-another"
    await place.writer.store.put(foreign, [b"x"])
    place.age(orphan)
    place.age(foreign)
    place.clock.now_ms += 600_000
    on = place.writer.coordinator
    while await on.mark_expired(100):
        pass
    await on.deleted([number for number, _ in await on.to_delete(0, 100)])
    await place.collector.sweep()
    assert sorted(await place.keys()) == sorted([young, foreign])
    assert place.collector.rounds.deleted_orphans == 1
    assert place.collector.rounds.foreign_objects == 1


async def test_a_deletion_that_failed_is_done_again(place, monkeypatch):
    left = (await place.writer.put((RIVER, 1))).object_key
    place.clock.now_ms += 600_000
    await place.collector.collect()
    place.clock.now_ms += PACE.grace_ms

    async def away(_keys):
        raise ObjectsAway("away")

    with monkeypatch.context() as patched:
        patched.setattr(place.writer.store, "delete", away)
        await place.collector.round(0, 1)
    assert place.collector.rounds.succeeded_ms is None and left in await place.keys()
    await place.collector.round(0, 1)
    assert place.collector.rounds.succeeded_ms is not None and await place.keys() == []


async def test_a_round_goes_on_until_nothing_is_due(place, monkeypatch):
    monkeypatch.setattr(garbage_rounds, "DELETE_AT_ONCE", 2)
    monkeypatch.setattr(garbage_rounds, "MARK_AT_ONCE", 2)
    for _ in range(7):
        await place.writer.put((RIVER, 1))
    place.clock.now_ms += 600_000
    await place.collector.collect()
    place.clock.now_ms += PACE.grace_ms
    await place.collector.collect()
    assert await place.keys() == [] and place.collector.rounds.waiting_objects == 0


async def test_the_task_makes_rounds_when_it_is_its_turn(place):
    await place.writer.put((RIVER, 1))
    place.clock.now_ms += 600_000
    await place.writer.coordinator.mark_expired(10)
    place.clock.now_ms += PACE.grace_ms
    task = asyncio.create_task(place.collector.run(lambda: (0, 1)))

    async def is_empty() -> bool:
        return not await place.keys()

    await until(is_empty)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_garbage_goes_from_every_kind_of_store(store, tmp_path):
    clock = Clock()
    coordinator = await SqliteCoordinator.open(str(tmp_path / "diskless.db"), CLUSTER, clock=clock)
    writer = await new_writer(store, coordinator)
    place = Place(
        tmp_path, writer, clock, Collector(coordinator, store, CLUSTER, GarbageRounds(PACE))
    )
    kept = await writer.write((RIVER, 1))
    await writer.put((RIVER, 1))
    for passed_ms in (0, 60_500, PACE.grace_ms):
        clock.now_ms += passed_ms
        await place.collector.collect()
    assert await place.keys() == [kept]
    await coordinator.close()
