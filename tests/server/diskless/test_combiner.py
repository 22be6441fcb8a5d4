"""Combining on a real store and a real coordinator, and what verify and restore make of it."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stores.objects.stored_kit import CLUSTER, DELTA, RIVER, TOPIC, Writer, new_writer

from anabranch.core.diskless import checkpoints
from anabranch.core.diskless.checkpoints import checkpoints_prefix, parts_prefix
from anabranch.core.diskless.combination import CombiningPace, Maker
from anabranch.core.diskless.combination_rounds import CombiningRounds
from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.garbage import GarbageRounds, Pace
from anabranch.core.diskless.manifests import ManifestLog, manifests_prefix
from anabranch.core.diskless.rows import Change, LogState, Wanted
from anabranch.core.errors import StorageFault
from anabranch.server.diskless.combiner import Combiner
from anabranch.server.diskless.garbage_collector import Collector
from anabranch.server.diskless.manifests import Manifests
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects import verification
from anabranch.stores.objects.engines import open_objects


@dataclass
class Place:
    folder: Path
    writer: Writer
    combiner: Combiner
    collector: Collector

    def paths(self, prefix: str) -> list[Path]:
        return sorted(each for each in (self.folder / prefix).rglob("*") if each.is_file())

    async def write(self, records: int) -> None:
        await self.writer.write((RIVER, records), (DELTA, 1))
        await self.writer.manifests.store_due(at_once=True)

    async def delete_before(self, *wanted) -> None:
        """Records are deleted, and their objects are collected."""
        coordinator = self.writer.coordinator
        for (key, _), state in zip(wanted, await coordinator.delete_before(wanted), strict=True):
            self.writer.manifests.heard([Change(key, state)])
        await self.collector.round(0, 1)

    async def rows(self):
        return await rows(self.writer.coordinator)

    async def verified(self):
        held = await verification.read_store(self.writer.store)
        return await verification.verify(
            self.writer.store, self.writer.coordinator, held, is_whole=True
        )


async def rows(coordinator):
    states = await coordinator.states([RIVER, DELTA])
    wanted = [
        Wanted(key, each.start_offset, 1 << 30)
        for key, each in zip((RIVER, DELTA), states, strict=True)
    ]
    return states, await coordinator.find(wanted)


@pytest.fixture
async def place(tmp_path):
    folder = tmp_path / "objects"
    folder.mkdir()
    store = await open_objects(f"file://{folder}")
    coordinator = await SqliteCoordinator.open(str(tmp_path / "diskless.db"), CLUSTER)
    yield await place_on(store, coordinator, folder)
    await store.close()
    await coordinator.close()


async def place_on(store, coordinator, folder: Path) -> Place:
    writer = await new_writer(store, coordinator)
    pace = CombiningPace(tail_ms=-1_000, fewest=1)
    combiner = Combiner(coordinator, store, Maker(CLUSTER, 1, 3), CombiningRounds(pace))
    collector = Collector(coordinator, store, CLUSTER, GarbageRounds(Pace(grace_ms=-1_000)))
    return Place(folder, writer, combiner, collector)


async def restored(place, name: str):
    coordinator = await SqliteCoordinator.open(str(place.folder.with_name(name)), CLUSTER)
    return await restored_into(place, coordinator)


async def restored_into(place, coordinator):
    held = await verification.read_store(place.writer.store)
    done = await verification.restore(
        place.writer.store, coordinator, held, with_unknown=False, now_ms=1_800_000_000_000
    )
    found = await rows(coordinator)
    await coordinator.close()
    return done, found


async def combined_thrice(place) -> None:
    """Eight manifests, two checkpoints, and most records deleted."""
    for number in range(8):
        await place.write(3)
        if number == 4:
            await place.combiner.round()
            await place.delete_before((RIVER, 12), (DELTA, 4))
    await place.combiner.round()
    await place.delete_before((RIVER, 24), (DELTA, 7))
    await place.write(2)
    await place.combiner.round()


async def test_a_coordinator_is_restored_exactly_from_a_checkpoint(place):
    await combined_thrice(place)
    assert place.combiner.rounds.deleted_manifests == 5
    assert len(place.paths(manifests_prefix(CLUSTER))) == 4
    assert len(place.paths(checkpoints_prefix(CLUSTER))) == 3
    assert (await place.verified()).findings == []
    done, found = await restored(place, "again.db")
    assert found == await place.rows() and done.findings == [] and done.later == []
    assert done.checkpoint == 3 and found[0][0].high_watermark == 26


@pytest.mark.parametrize("url", ["s3"], indirect=True)
async def test_manifests_are_combined_and_restored_on_s3_and_postgresql(store, postgres, tmp_path):
    """As on a folder and SQLite: the same checkpoints, and the same coordinator again."""
    first, second = [
        await open_coordinator(str(postgres.new_database()), CLUSTER) for _ in range(2)
    ]
    place = await place_on(store, first, tmp_path)
    await combined_thrice(place)
    assert place.combiner.rounds.deleted_manifests == 5
    counts = [
        len([each async for page in store.list(prefix(CLUSTER)) for each in page])
        for prefix in (manifests_prefix, checkpoints_prefix)
    ]
    assert counts == [4, 3]
    assert (await place.verified()).findings == []
    expected = await place.rows()
    done, found = await restored_into(place, second)
    assert found == expected and done.findings == [] and done.later == []
    assert done.checkpoint == 3 and found[0][0].high_watermark == 26
    await first.close()


@pytest.mark.parametrize("url", ["s3"], indirect=True)
async def test_two_brokers_that_combine_on_s3_at_the_same_time_lose_nothing(store, postgres):
    """Puts never replace there, either: the broker that comes second does no harm."""
    first, second = [
        await open_coordinator(str(postgres.new_database()), CLUSTER) for _ in range(2)
    ]
    place = await place_on(store, first, Path())
    another = Combiner(
        first, store, Maker(CLUSTER, 2, 5), CombiningRounds(CombiningPace(tail_ms=-1_000, fewest=1))
    )
    for _ in range(4):
        for _ in range(3):
            await place.write(2)
        await asyncio.gather(place.combiner.round(), another.round())
    assert (await place.verified()).findings == []
    expected = await place.rows()
    _, found = await restored_into(place, second)
    assert found == expected and found[0][0].high_watermark == 24
    await first.close()


async def test_an_empty_partition_keeps_its_end_without_its_manifests(place):
    await combined_thrice(place)
    await place.delete_before((RIVER, 26), (DELTA, 9))
    for _ in range(3):
        await place.combiner.round()
        await place.writer.manifests.store_due(at_once=True)
        place.writer.manifests.heard([Change(RIVER, LogState(26, 26))])
    _, found = await restored(place, "again.db")
    assert [state[:2] for state in found[0]] == [(26, 26), (9, 9)]


async def second_life(place, name: str) -> Place:
    """A restored coordinator goes on, with a new epoch of its broker."""
    await restored(place, name)
    store = place.writer.store
    coordinator = await SqliteCoordinator.open(str(place.folder.with_name(name)), CLUSTER)
    await coordinator.register(1, 4)
    notes = ManifestLog(CLUSTER, 1, 4, {TOPIC: "river"}.get)
    clock = itertools.count()
    writer = Writer(store, coordinator, Manifests(store, notes, lambda: next(clock)), epoch=4)
    combiner = Combiner(coordinator, store, Maker(CLUSTER, 1, 4), place.combiner.rounds)
    collector = Collector(coordinator, store, CLUSTER, place.collector.rounds)
    return Place(place.folder, writer, combiner, collector)


async def test_checkpoints_go_on_after_a_restore_that_had_not_all(place):
    """Ids and offsets are given a second time, and objects that nobody knows are left."""
    await combined_thrice(place)
    await place.write(2)
    place.paths(manifests_prefix(CLUSTER))[-1].unlink()
    second = await second_life(place, "second.db")
    for number in range(4):
        await second.write(3)
        await second.delete_before((RIVER, 26 + number), (DELTA, 9))
        await second.combiner.round()
        assert second.combiner.rounds.succeeded_ms is not None
    await second.writer.manifests.store_due(at_once=True)
    assert [each.kind for each in (await second.verified()).findings] == [Kind.OBJECT_UNKNOWN]
    done, found = await restored(second, "third.db")
    assert found == await second.rows() and done.checkpoint == 7 and len(done.later) == 1
    assert found[0][0].high_watermark == 38
    await second.writer.coordinator.close()


@pytest.mark.parametrize("prefix", [checkpoints_prefix, parts_prefix])
async def test_the_checkpoint_before_a_damaged_one_is_used(place, prefix):
    await combined_thrice(place)
    newest = place.paths(prefix(CLUSTER))[-1]
    os.truncate(newest, 20)
    found = (await place.verified()).findings
    assert [each.kind for each in found] == [Kind.CHECKPOINT_DAMAGED]
    assert not found[0].kind.is_damage
    done, again = await restored(place, "again.db")
    assert done.checkpoint == 2 and again == await place.rows()


async def test_no_sound_checkpoint_is_a_refusal_with_a_remedy(place):
    await combined_thrice(place)
    for path in place.paths(checkpoints_prefix(CLUSTER)):
        os.truncate(path, 20)
    with pytest.raises(StorageFault, match=r"put one of .*/checkpoints/0000000003.* back"):
        await restored(place, "again.db")


async def test_a_checkpoint_of_a_newer_version_is_refused_and_nothing_deleted(place, monkeypatch):
    monkeypatch.setattr(checkpoints, "FORMAT", 7)
    await combined_thrice(place)
    monkeypatch.undo()
    before = place.paths(CLUSTER)
    await place.combiner.round()
    assert place.paths(CLUSTER) == before
    with pytest.raises(StorageFault, match="format 7 is not known, 1 is; use the version"):
        await restored(place, "again.db")


async def test_a_store_that_does_not_answer_ends_the_round_and_changes_nothing(place, monkeypatch):
    await place.write(3)
    before = place.paths(CLUSTER)

    def away(_prefix):
        raise StorageFault("away")

    monkeypatch.setattr(place.writer.store, "list", away)
    await place.combiner.round()
    assert place.combiner.rounds.succeeded_ms is None and place.paths(CLUSTER) == before
