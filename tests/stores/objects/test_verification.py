"""Verifying and restoring: each kind of damage is found, and a lost coordinator comes back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.stores.objects.stored_kit import (
    CLUSTER,
    DELTA,
    LEASE_MS,
    RIVER,
    TOPIC,
    Writer,
    new_writer,
)

from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.manifests import ManifestLog, manifests_prefix
from anabranch.core.diskless.rows import Batch, Change, Commit, LogKey, LogState, NewLogs, Wanted
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.log.producer_snapshot import encode_snapshot
from anabranch.core.log.producers import Producer as LogProducer
from anabranch.core.log.producers import ProducerBatch, ProducerStates
from anabranch.core.log.segment import SNAPSHOT
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.remote.sidecar import encode_sidecar
from anabranch.core.types import TopicId
from anabranch.server.diskless.manifests import Manifests
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects import verification
from anabranch.stores.objects.engines import open_objects


@dataclass
class Place:
    """A cluster's folders, its writer, and the keys that were written."""

    folder: Path
    database: Path
    writer: Writer
    keys: list[str]

    def path(self, key: str) -> Path:
        return self.folder / key

    @property
    def manifests(self) -> list[Path]:
        return sorted(self.path(manifests_prefix(CLUSTER)).rglob("*-*"))

    async def verify(self, *, is_whole: bool = True):
        held = await verification.read_store(self.writer.store)
        return await verification.verify(
            self.writer.store, self.writer.coordinator, held, is_whole=is_whole
        )

    async def kinds(self, *, is_whole: bool = True) -> list[Kind]:
        return [each.kind for each in (await self.verify(is_whole=is_whole)).findings]


@pytest.fixture
async def place(tmp_path):
    folder = tmp_path / "objects"
    folder.mkdir()
    store = await open_objects(f"file://{folder}")
    coordinator = await SqliteCoordinator.open(str(tmp_path / "diskless.db"), CLUSTER)
    writer = await new_writer(store, coordinator)
    keys = []
    for count in (3, 2):
        keys.append(await writer.write((RIVER, count), (DELTA, 1), (RIVER, 1)))
        await writer.manifests.store_due(at_once=True)
    yield Place(folder, tmp_path / "diskless.db", writer, keys)
    await store.close()
    await coordinator.close()


async def rows(coordinator):
    return await coordinator.states([RIVER, DELTA]), await coordinator.find(
        [Wanted(RIVER, 0, 1 << 30), Wanted(DELTA, 0, 1 << 30)]
    )


async def test_what_is_whole_has_no_findings(place):
    for is_whole in (False, True):
        found = await place.verify(is_whole=is_whole)
        assert found.findings == []
    assert found[:2] == (CLUSTER, 2) and found.manifests == 2 and found.rows == 4


async def test_an_object_that_is_gone_is_found(place):
    os.unlink(place.path(place.keys[0]))
    assert await place.kinds() == [Kind.OBJECT_MISSING]


@pytest.mark.parametrize("is_whole", [False, True])
async def test_an_object_that_was_cut_is_found(place, is_whole):
    os.truncate(place.path(place.keys[0]), 90)
    assert await place.kinds(is_whole=is_whole) == [Kind.OBJECT_DAMAGED]


def overwrite(path: Path, at: int) -> None:
    held = bytearray(path.read_bytes())
    held[at] ^= 1
    path.write_bytes(held)


async def test_a_batch_that_was_overwritten_is_found_when_all_is_read(place):
    overwrite(place.path(place.keys[1]), 150)
    assert await place.kinds(is_whole=False) == []
    assert await place.kinds() == [Kind.OBJECT_DAMAGED]


async def test_an_index_that_was_overwritten_is_found(place):
    overwrite(place.path(place.keys[1]), -60)
    assert await place.kinds(is_whole=False) == [Kind.OBJECT_DAMAGED]


async def test_an_object_under_another_s_name_is_found(place):
    first, second = (place.path(key) for key in place.keys)
    second.write_bytes(first.read_bytes())
    assert Kind.OBJECT_DAMAGED in await place.kinds(is_whole=False)


async def test_what_a_crash_leaves_behind_is_no_damage(place):
    await place.writer.put((RIVER, 4))
    await place.writer.store.put(f"{CLUSTER}/wal/00/{9:019d}-0badcafe", [b"not ours"])
    committed = await place.writer.write((DELTA, 2))
    found = (await place.verify(is_whole=False)).findings
    unknown = [each for each in found if each.kind is Kind.OBJECT_UNKNOWN]
    assert [each.kind for each in found if not each.kind.is_damage] == [
        Kind.NOT_NOTED, Kind.OBJECT_UNKNOWN, Kind.OBJECT_UNUSED
    ]  # fmt: skip
    assert unknown[0].place.endswith("0badcafe") and found[0].place == committed


async def test_a_manifest_that_is_damaged_or_gone_is_found(place):
    first, second = place.manifests
    overwrite(second, 40)
    assert Kind.MANIFEST_DAMAGED in await place.kinds()
    first.unlink()
    overwrite(second, 40)
    assert Kind.MANIFEST_MISSING in await place.kinds()


async def test_rows_that_do_not_agree_with_objects_and_manifests_are_found(place):
    on = place.writer.coordinator._connection
    on.execute(
        "UPDATE runs SET byte_offset = byte_offset + 1 WHERE base_offset = 0 AND partition = 0"
    )
    kinds = await place.kinds()
    assert Kind.ROW_OUTSIDE in kinds and Kind.MANIFEST_DIFFERS in kinds
    on.execute(
        "UPDATE runs SET byte_offset = byte_offset - 1 WHERE base_offset = 0 AND partition = 0"
    )
    on.execute("DELETE FROM runs WHERE partition = 0 AND base_offset = 0")
    kinds = await place.kinds()
    assert Kind.OFFSETS_MISSING in kinds and Kind.MANIFEST_DIFFERS in kinds


async def test_a_partition_that_begins_before_the_start_that_a_manifest_has_is_found(place):
    place.writer.manifests.heard([Change(RIVER, LogState(2, 7))])
    await place.writer.manifests.store_due(at_once=True)
    [found] = (await place.verify()).findings
    assert found.kind is Kind.MANIFEST_DIFFERS
    assert found.detail == "a manifest begins at 2; the coordinator 0"


async def test_a_coordinator_that_was_lost_is_not_said_to_be_sound(place):
    place.writer.coordinator = await fresh(place)
    assert Kind.COORDINATOR_EMPTY in await place.kinds()
    await place.writer.coordinator.close()


async def fresh(place, name="fresh.db"):
    return await SqliteCoordinator.open(str(place.database.with_name(name)), CLUSTER)


async def restored(place, coordinator, *, with_unknown=False):
    held = await verification.read_store(place.writer.store)
    return await verification.restore(
        place.writer.store, coordinator, held, with_unknown=with_unknown, now_ms=1_800_000_000_000
    )


async def test_a_lost_coordinator_is_rebuilt_as_it_was(place):
    before = await rows(place.writer.coordinator)
    coordinator = await fresh(place)
    done = await restored(place, coordinator)
    assert done.findings == [] and done.later == []
    assert await rows(coordinator) == before
    place.writer.coordinator = coordinator
    assert await place.kinds() == []
    with pytest.raises(StorageFault, match="not empty"):
        await restored(place, coordinator)
    await coordinator.close()


async def test_producers_of_segments_are_known_to_a_restored_coordinator(place):
    """Of a partition without rows of its own, and of one that wrote on since."""
    gone = LogKey(TopicId(bytes([9]) * 16), 0)
    states = ProducerStates()
    states.producers[5] = LogProducer(5, 2)
    states.producers[5].batches = [ProducerBatch(9, 9, 4, 0)]
    for key in (RIVER, gone):
        await put(place.writer.store, key, 10, encode_snapshot(states))
    coordinator = await fresh(place)
    done = await restored(place, coordinator)
    assert [each for each in done.findings if each.kind is Kind.OBJECT_DAMAGED] == []
    await coordinator.take_control(2)
    await coordinator.register(1, 3)
    await coordinator.create_logs(2, [NewLogs(gone.topic_id, "lake", 0, 1, (10,))])
    [state] = await coordinator.states([gone])
    assert (state.high_watermark, state.tiered_end) == (10, 10)
    for key in (RIVER, gone):
        assert await verdict(coordinator, key, sequence=5) == (ErrorCode.NONE, 5)
    assert (await verdict(coordinator, gone, sequence=11))[0] is not ErrorCode.NONE
    assert await verdict(coordinator, gone, sequence=10) == (ErrorCode.NONE, 10)
    await coordinator.close()


async def put(store, key, end, snapshot):
    """A segment from 0 to an end."""
    segment = RemoteSegment(
        SegmentId(bytes([key.topic_id[0]]) * 16), key, 0, end, 5, (EpochStart(0, 0),), 8, 1, 0,
    )  # fmt: skip
    folder = segment_folder(CLUSTER, key, segment.segment_id)
    for name in upload_names(segment):
        content = b"x" * segment.byte_size
        if name == SIDECAR:
            content = encode_sidecar("lake", segment)
        elif name.endswith(SNAPSHOT):
            content = snapshot
        await store.put(folder + name, [content])


async def verdict(coordinator, key, sequence):
    [prepared] = await coordinator.prepare(1, 3, 1, LEASE_MS)
    each = Batch(key, 0, 100, 5, 5, producer_id=5, producer_epoch=2, base_sequence=sequence)
    answer = await coordinator.commit(Commit(*prepared[:2], 100, 1, 3, (each,)))
    return answer.verdicts[0].code, answer.verdicts[0].base_offset


async def test_every_partition_of_a_restored_coordinator_is_verified(place):
    """Also one above others that never had a record."""
    last = LogKey(TOPIC, 5)
    await place.writer.coordinator.create_logs(1, [NewLogs(TOPIC, "river", 2, 6)])
    key = await place.writer.write((last, 1))
    await place.writer.manifests.store_due(at_once=True)
    coordinator = await fresh(place)
    await restored(place, coordinator)
    place.writer.coordinator = coordinator
    os.unlink(place.path(key))
    assert await place.kinds() == [Kind.OBJECT_MISSING]
    await coordinator.close()


async def test_objects_that_no_manifest_names_are_listed_and_appended_only_when_asked(place):
    later = [await place.writer.write((RIVER, 5)), await place.writer.write((RIVER, 6), (DELTA, 2))]
    before = await rows(place.writer.coordinator)
    without = await fresh(place, "without.db")
    done = await restored(place, without)
    assert done.later == sorted(later) and not done.is_appended
    assert [state.high_watermark for state in await without.states([RIVER, DELTA])] == [7, 2]
    await without.close()
    for name in ("with.db", "again.db"):  # the second time, a manifest names them
        coordinator = await fresh(place, name)
        done = await restored(place, coordinator, with_unknown=True)
        assert await rows(coordinator) == before
        assert [(each.kind, each.place, each.detail) for each in done.findings] == [
            (Kind.OFFSETS_GUESSED, "river-0", "the order from offset 7 on is a guess"),
            (Kind.OFFSETS_GUESSED, "river-1", "the order from offset 2 on is a guess"),
        ]
        await coordinator.close()
    assert done.later == []


async def test_offsets_that_no_manifest_has_stay_missing_and_later_objects_follow_the_end(place):
    noting = place.writer.manifests
    notes = ManifestLog(CLUSTER, 2, 3, {TOPIC: "river"}.get)
    place.writer.manifests = Manifests(place.writer.store, notes, lambda: 0)
    await place.writer.write((RIVER, 5))  # a broker that stored no manifest
    place.writer.manifests = noting
    await place.writer.write((RIVER, 6))
    await noting.store_due(at_once=True)
    for name, with_unknown, end in (("without.db", False, 18), ("with.db", True, 23)):
        coordinator = await fresh(place, name)
        done = await restored(place, coordinator, with_unknown=with_unknown)
        [missing] = [each for each in done.findings if each.kind is Kind.OFFSETS_MISSING]
        assert missing.kind.is_damage and missing.detail.startswith("7 to 12")
        assert [state.high_watermark for state in await coordinator.states([RIVER])] == [end]
        assert len(done.later) == 1
        await coordinator.close()


async def test_a_store_that_no_cluster_has_used_is_refused(tmp_path):
    store = await open_objects(f"file://{tmp_path}")
    with pytest.raises(StorageFault, match="no cluster has used this store"):
        await verification.read_store(store)
    await store.close()
