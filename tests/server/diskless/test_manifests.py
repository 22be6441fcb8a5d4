"""The task that stores manifests: what it does while the store is away, or the name is taken."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.stores.objects.stored_kit import CLUSTER, RIVER, TOPIC, until

from anabranch.core.diskless.manifests import (
    FULL_BATCHES,
    MOST_WAITING,
    ManifestLog,
    decode_manifest,
    manifests_prefix,
)
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.rows import (
    Batch,
    Change,
    Commit,
    CommitState,
    Committed,
    LogKey,
    LogState,
    Verdict,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.server.diskless import manifests
from anabranch.server.diskless.manifests import Manifests
from anabranch.stores.objects.engines import open_objects

NAMES = itertools.count()
GONE = TopicId(b"g" * 16)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
async def store():
    return await open_objects(f"memory://manifests-{next(NAMES)}")


def new_manifests(store, clock=None):
    return Manifests(store, ManifestLog(CLUSTER, 1, 3, {TOPIC: "river"}.get), clock or Clock())


def commit(number: int, batches: int = 1):
    asked = tuple(Batch(RIVER, 30, 100, 1, 5) for _ in range(batches))
    verdicts = tuple(Verdict(ErrorCode.NONE, number) for _ in range(batches))
    return Commit(number, f"o/{number}", 900, 1, 3, asked), Committed(
        CommitState.COMMITTED, verdicts
    )


async def stored(store):
    found = [each async for page in store.list(manifests_prefix(CLUSTER)) for each in page]
    return [
        decode_manifest((await store.read(each.key, [(0, each.byte_size)]))[0], each.key)
        for each in found
    ]


async def are_stored(store, count: int) -> bool:
    return len(await stored(store)) >= count


async def test_what_is_noted_is_stored_at_the_stop_with_names_starts_and_deletions(store):
    noting = new_manifests(store)
    noting.committed(*commit(7))
    noting.heard([Change(RIVER, LogState(3, 9)), Change(LogKey(GONE, 0), None)])
    await noting.stop()
    [manifest] = await stored(store)
    assert [one.object_id for one in manifest.objects] == [7]
    assert (manifest.starts, manifest.deleted, manifest.names) == (
        [(RIVER, 3)],
        [GONE],
        {TOPIC: "river"},
    )


async def test_a_refused_commit_is_not_noted(store):
    noting = new_manifests(store)
    asked, _ = commit(7)
    noting.committed(asked, Committed(CommitState.REFUSED))
    await noting.stop()
    assert await stored(store) == []


async def test_a_full_manifest_is_stored_at_once_and_others_when_due(store):
    clock = Clock()
    noting = new_manifests(store, clock)
    task = asyncio.create_task(noting.run())
    noting.committed(*commit(1, FULL_BATCHES))
    await until(lambda: are_stored(store, 1))
    noting.committed(*commit(2))
    assert await noting.store_due() and len(await stored(store)) == 1
    clock.now_ms += 10_000
    assert await noting.store_due() and len(await stored(store)) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_while_the_store_is_away_manifests_wait_and_then_come_in_order(store, monkeypatch):
    monkeypatch.setattr(manifests, "RETRY_S", 0.01)
    noting = new_manifests(store)
    put, away = store.put, True

    async def failing(key, buffers):
        if away:
            raise ObjectsAway("away")
        await put(key, buffers)

    monkeypatch.setattr(store, "put", failing)
    for number in range(3):
        noting.committed(*commit(number))
        assert not await noting.store_due(at_once=True)
    away = False
    task = asyncio.create_task(noting.run())
    await until(lambda: are_stored(store, 3))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [[one.object_id for one in each.objects] for each in await stored(store)] == [
        [0],
        [1],
        [2],
    ]


def test_starts_and_deletions_outlast_a_store_that_is_away_for_long():
    """What is told once may be in a manifest for which there is no room in memory."""
    notes = ManifestLog(CLUSTER, 1, 3, {TOPIC: "river"}.get)
    partitions = [LogKey(TOPIC, number) for number in range(2 * MOST_WAITING)]
    notes.heard([Change(LogKey(GONE, 0), None)], 0)
    notes.tick(0, at_once=True)
    notes.heard([Change(partitions[0], LogState(7, 9))], 0)
    for number, key in enumerate(partitions):
        notes.heard([Change(key, LogState(number + 1, number + 9))], number)
        notes.tick(number, at_once=True)
    assert notes.waiting_count == MOST_WAITING
    starts: dict[LogKey, int] = {}
    deleted = set()
    while (frozen := notes.tick(1000, at_once=True)) is not None:
        manifest = decode_manifest(frozen.content, frozen.key)
        starts.update(manifest.starts)
        deleted.update(manifest.deleted)
        notes.stored(frozen)
    assert deleted == {GONE}
    assert starts == {key: max(key.partition + 1, 7 * (not key.partition)) for key in partitions}


async def test_a_put_whose_answer_was_lost_is_not_taken_for_another_s(store, monkeypatch):
    noting, put = new_manifests(store), store.put

    async def losing(key, buffers):
        await put(key, buffers)
        raise ObjectsAway("the answer is lost")

    noting.committed(*commit(1))
    with monkeypatch.context() as patched:
        patched.setattr(store, "put", losing)
        assert not await noting.store_due(at_once=True)
    assert await noting.store_due() and noting.given_up_objects == 0


async def test_another_process_with_this_broker_s_id_is_told_and_nothing_replaced(store):
    first, second = new_manifests(store), new_manifests(store)
    for number, noting in enumerate((first, second)):
        noting.committed(*commit(number))
        assert await noting.store_due(at_once=True)
    assert (first.given_up_objects, second.given_up_objects) == (0, 1)
    assert [one.object_id for one in (await stored(store))[0].objects] == [0]


async def test_manifests_are_stored_after_a_put_failed_in_whatever_way(store, monkeypatch):
    monkeypatch.setattr(manifests, "RETRY_S", 0)
    clock, taken, asked = Clock(), store.put, []

    async def put(key, buffers):
        asked.append(key)
        if len(asked) == 1:
            raise RuntimeError("nobody foresaw this")
        await taken(key, buffers)

    store.put = put
    noting = new_manifests(store, clock)
    noting.committed(*commit(7))
    clock.now_ms = 60_000
    running = asyncio.ensure_future(noting.run())
    await until(lambda: are_stored(store, 1))
    running.cancel()
