"""A segment of a real disk goes to a store as it is, at its pace, and only while its try stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, batch, marker

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.segment_files import Try, describe, local_segments
from anabranch.core.remote.segment_upload import Lease, uploaded
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.sidecar import decode_sidecar
from anabranch.core.remote.unfinished import CONFIRM_MS, LEASE_MS
from anabranch.server.files import RealFiles
from anabranch.server.remote.segment_upload import PIECE_BYTES, Upload
from anabranch.stores.objects.engines import open_objects

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
TRY = Try(SegmentId(bytes(range(16))), 3, 7)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def log(tmp_path):
    """A log whose first segment has more than a piece, and an aborted transaction."""
    folder = f"{tmp_path}/log/{KEY}"
    log = Log.create(RealFiles(), folder, KEY, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    ours = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    append(log, batch(3, base_sequence=0, **ours), leader_epoch=1)
    for tag in range(6):
        append(log, batch(4, size_bytes=100_000, tag=tag), leader_epoch=2)
    log.append_as_leader(marker(5, committed=False), leader_epoch=4, now_ms=NOW_MS, client=False)
    log.roll(NOW_MS)
    yield log
    log.close(clean=False)


@pytest.fixture
async def store(tmp_path):
    (tmp_path / "objects").mkdir()
    store = await open_objects(f"file://{tmp_path}/objects")
    yield store
    await store.close()


async def yes() -> bool:
    return True


def described(log):
    found = describe(log, local_segments(log)[0], TRY)
    assert found is not None
    return found


@dataclass
class Uploads:
    """A store, and a coordinator that answers as it is told."""

    store: ObjectStore
    clock: Clock
    stand: Callable[[], Awaitable[bool]]
    pace: CopyPace
    asked_ms: int

    async def stands(self, _segment: RemoteSegment) -> bool:
        return await self.stand()

    async def run(self, segment, files, cuts=None):
        lease = Lease(segment, self.asked_ms, self.clock)
        puts = uploaded(CLUSTER, "flights", segment, files, cuts or (lambda: files.cuts))
        await Upload(self.store, self, lease, self.pace, self.clock).run(puts)


def upload_to(store, *, clock=None, stands=yes, pace=None) -> Uploads:
    clock = clock or Clock()
    return Uploads(store, clock, stands, pace or CopyPace(), clock())


async def listed(store) -> list[str]:
    return [each.key async for page in store.list("") for each in page]


async def test_every_file_is_stored_as_it_is_and_the_sidecar_tells_of_it(log, store, tmp_path):
    segment, files = described(log)
    assert segment.byte_size > 2 * PIECE_BYTES
    await upload_to(store).run(segment, files)
    folder = segment_folder(CLUSTER, segment.key, segment.segment_id)
    assert await listed(store) == sorted(folder + name for name in upload_names(segment))
    for name in upload_names(segment):
        held = (tmp_path / "objects" / folder / name).read_bytes()
        if name == SIDECAR:
            told = decode_sidecar(held, folder + name)
            finished = segment._replace(state=SegmentState.COPY_SEGMENT_FINISHED)
            assert told == ("flights", finished)
        elif name == "leader-epoch-checkpoint":
            assert held == b"0\n3\n1 0\n2 3\n4 27\n"
        else:
            assert held == (Path(log.folder) / name).read_bytes(), name


async def test_an_upload_that_is_made_again_stores_the_same(log, store):
    segment, files = described(log)
    for _ in range(2):
        await upload_to(store).run(segment, files)
    assert len(await listed(store)) == len(upload_names(segment))


async def test_a_segment_that_is_deleted_meanwhile_is_read_as_it_was(log, store):
    segment, files = described(log)
    clock = Clock()

    async def stands() -> bool:
        log.files.remove(files.log_path)
        return True

    upload = upload_to(store, clock=clock, stands=stands)
    clock.now_ms = CONFIRM_MS
    await upload.run(segment, files)
    assert len(await listed(store)) == len(upload_names(segment))


async def test_a_segment_that_was_cut_is_not_stored(log, store):
    segment, files = described(log)
    log.segments[0].file.truncate(segment.byte_size - 1)
    with pytest.raises(StorageFault, match="has changed"):
        await upload_to(store).run(segment, files)
    assert await listed(store) == []


async def test_a_file_that_cannot_be_read_is_named(log, store):
    segment, files = described(log)
    log.files.remove(files.log_path)
    with pytest.raises(StorageFault, match=r"00\.log: No such file.*is not copied"):
        await upload_to(store).run(segment, files)


async def test_a_try_that_was_given_up_stores_nothing_more(log, store):
    segment, files = described(log)
    clock, asked = Clock(), []

    async def stands() -> bool:
        asked.append(clock.now_ms)
        return False

    upload = upload_to(store, clock=clock, stands=stands)
    clock.now_ms = CONFIRM_MS
    with pytest.raises(TryEnded, match="given up"):
        await upload.run(segment, files)
    assert asked == [CONFIRM_MS]
    assert await listed(store) == []


async def test_a_coordinator_that_is_away_ends_a_copy_after_a_lease(log, store):
    segment, files = described(log)
    clock = Clock()

    async def away() -> bool:
        raise CoordinatorAway("no answer")

    upload = upload_to(store, clock=clock, stands=away)
    clock.now_ms = LEASE_MS - 1
    await upload.run(segment, files)
    clock.now_ms = LEASE_MS
    with pytest.raises(TryEnded, match="for a lease"):
        await upload.run(segment, files)


@pytest.mark.parametrize("at", range(7))
async def test_a_log_that_is_cut_at_any_time_leaves_no_sidecar_of_what_was_read_later(
    log, store, at
):
    """A restore would take one for that of a whole segment."""
    segment, files = described(log)
    asked = []

    def cuts() -> int:
        return files.cuts + (len(asked) > at)

    async def stands() -> bool:
        asked.append(segment)
        clock.now_ms += CONFIRM_MS
        return True

    clock = Clock()
    upload = upload_to(store, clock=clock, stands=stands)
    clock.now_ms = CONFIRM_MS
    names = upload_names(segment)
    reads = len(range(0, segment.byte_size, PIECE_BYTES)) + len(names) - 2
    assert reads > 6, "each request asks"
    with pytest.raises(TryEnded, match="truncated while it was copied"):
        await upload.run(segment, files, cuts)
    assert not any(each.endswith(SIDECAR) for each in await listed(store))


async def test_a_lease_is_as_old_as_the_question_not_the_answer(log, store):
    segment, files = described(log)
    clock = Clock()

    async def slow() -> bool:
        clock.now_ms += LEASE_MS
        return True

    upload = upload_to(store, clock=clock, stands=slow)
    clock.now_ms = CONFIRM_MS
    with pytest.raises(TryEnded, match="for a lease"):
        await upload.run(segment, files)
    assert await listed(store) == []


async def test_copies_are_paced(log, store, monkeypatch):
    segment, files = described(log)
    waits, real = [], asyncio.sleep
    clock = Clock()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.now_ms += round(seconds * 1000)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    rate = 100_000
    await upload_to(store, clock=clock, pace=CopyPace(rate)).run(segment, files)
    assert sum(waits) >= (segment.byte_size - PIECE_BYTES) / rate - 1
    assert max(waits) <= CONFIRM_MS / 1000
