"""A coordinator that was put back from an older copy is noticed before anything is asked of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil

import pytest
from tests.core.api.in_memory_node import InMemoryNode
from tests.stores.coordinator.async_memory import AsyncMemoryCoordinator
from tests.stores.objects.stored_kit import CLUSTER, DELTA, LEASE_MS, RIVER, TOPIC, Writer, until

from anabranch.core.diskless.coordinator import CoordinatorAway, OlderCopy
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.last_commits import NAMES_LOOKED_FOR, note_key
from anabranch.core.diskless.manifests import ManifestLog
from anabranch.core.diskless.rows import NewLogs
from anabranch.core.errors import StorageFault
from anabranch.core.wire.records import Record, build_batch
from anabranch.server.clocks import steady_ms
from anabranch.server.config import load_config
from anabranch.server.diskless.manifests import Manifests
from anabranch.server.diskless.shell import DisklessShell
from anabranch.server.diskless.stores import Stores
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.folder import FolderStore

STORES = itertools.count()


def opened(folder):
    """What a node's start opens."""
    config = load_config(None, [
        f"log.dirs={folder}", "diskless.storage.system.enable=true",
        f"diskless.storage.url=file://{folder}/objects",
        f"diskless.coordinator.url=sqlite://{folder}/order.db",
    ])  # fmt: skip
    return Stores.open(config, CLUSTER)


async def claimed(folder):
    """The store of a cluster that has started once."""
    (folder / "objects").mkdir()
    await (await opened(folder)).close()
    return await open_objects(f"file://{folder}/objects")


async def writer(store, path, broker):
    coordinator = await SqliteCoordinator.open(str(path), CLUSTER)
    await coordinator.take_control(1)
    await coordinator.create_logs(1, [NewLogs(TOPIC, "river", 0, 2)])
    await coordinator.register(broker, 3)
    notes = ManifestLog(CLUSTER, broker, 3, {TOPIC: "river"}.get)
    return Writer(store, coordinator, Manifests(store, notes, lambda: 0), broker)


async def test_any_copy_from_before_a_noted_commit_is_refused_and_any_later_one_is_not(tmp_path):
    """Two brokers commit in turn, of ids that they got before; a copy is kept before each commit,
    and a note is put after each one. Each note makes every older copy of no use."""
    store = await claimed(tmp_path)
    path = tmp_path / "order.db"
    writers = [await writer(store, path, broker) for broker in (1, 2)]
    commits = [await writers[turn % 2].put((RIVER, 2), (DELTA, 1)) for turn in range(6)]
    copies = []
    for turn, commit in enumerate(commits):
        copies.append(tmp_path / f"copy-{turn}.db")
        shutil.copy(path, copies[-1])
        each = writers[turn % 2]
        each.manifests.committed(commit, await each.coordinator.commit(commit))
        assert await each.manifests.store_due(at_once=True)
        newest = tmp_path / "newest.db"
        shutil.copy(path, newest)
        for copy in (*copies, newest):
            shutil.copy(copy, path)
            if copy is newest:
                await (await opened(tmp_path)).close()
            else:
                with pytest.raises(StorageFault, match="it was replaced by an older copy"):
                    await opened(tmp_path)
    notes = sorted(each.name for each in (tmp_path / "objects" / CLUSTER).glob("last-commits/*/*"))
    assert [int(each.partition("-")[0]) for each in notes] == [
        commit.object_id for commit in commits[-2:]
    ]
    for each in writers:
        await each.coordinator.close()


async def test_a_copy_from_before_the_name_of_a_stored_object_is_refused_without_any_note(tmp_path):
    """Brokers that were killed noted nothing. Names that no object got lie between those that did,
    and each of two brokers holds ids that it got before the other's."""
    store = await claimed(tmp_path)
    path = tmp_path / "order.db"
    one, two = [await writer(store, path, broker) for broker in (1, 2)]
    for unused in (0, 1, NAMES_LOOKED_FOR // 2, NAMES_LOOKED_FOR - 1):
        copy = tmp_path / f"copy-{unused}.db"
        shutil.copy(path, copy)
        if unused:
            await two.coordinator.prepare(2, 3, unused, LEASE_MS)
        commit = await one.put((RIVER, 2))
        newest = tmp_path / "newest.db"
        shutil.copy(path, newest)
        shutil.copy(copy, path)
        with pytest.raises(StorageFault, match="it was replaced by an older copy"):
            await opened(tmp_path)
        shutil.copy(newest, path)
        await (await opened(tmp_path)).close()
        await one.coordinator.commit(commit)
    for each in (one, two):
        await each.coordinator.close()


async def test_names_that_are_given_while_it_is_looked_for_them_are_no_reason(
    tmp_path, monkeypatch
):
    store = await claimed(tmp_path)
    on = await writer(store, tmp_path / "order.db", 1)
    await on.put((RIVER, 2))
    size, put = FolderStore.size, []

    async def put_first(self, key):
        if "/wal/" in key and not put:
            put.append(await on.put((RIVER, 1)))
        return await size(self, key)

    monkeypatch.setattr(FolderStore, "size", put_first)
    await (await opened(tmp_path)).close()
    assert put
    await on.coordinator.close()


async def test_commits_that_are_deleted_or_of_another_database_are_no_reason(tmp_path):
    store = await claimed(tmp_path)
    on = await writer(store, tmp_path / "order.db", 1)
    await on.write((RIVER, 2))
    assert await on.manifests.store_due(at_once=True)
    await on.coordinator.delete_topics(1, [TOPIC])
    while await on.coordinator.mark_expired(100):
        pass
    waiting = await on.coordinator.to_delete(0, 100)
    await on.coordinator.deleted([number for number, _ in waiting])
    await on.coordinator.prepare(1, 3, 1, LEASE_MS)
    await (await opened(tmp_path)).close()
    await on.coordinator.close()


# While a node runs.


class Ending(AsyncMemoryCoordinator):
    """What listens to it ends when a test says so."""

    def __init__(self):
        super().__init__(SqliteInMemory(CLUSTER, lambda: 0))
        self.ends = asyncio.Event()

    async def changes(self):
        yield []
        await self.ends.wait()
        raise CoordinatorAway("the connection that listens was lost")


async def running(coordinator):
    """A broker's diskless half with its shell, on a store of its own."""
    store = await open_objects(f"memory://older-{next(STORES)}")
    node = InMemoryNode(config={"diskless.storage.system.enable": "true"})
    topic_id = node.topic("t", 1, configs={"diskless.enable": "true"})
    await coordinator.take_control(1)
    await coordinator.create_logs(1, [NewLogs(topic_id, "t", 0, 1)])

    def begin():
        node.broker.steady_ms = steady_ms()

    shell = DisklessShell(node.broker, begin, lambda: shell.perform(), lambda: None)
    shell.start(Stores(coordinator, store, 0), CLUSTER)
    return node.broker.diskless, shell, store


async def until_refused(machine, coordinator):
    async def is_refused():
        return "anabranch diskless restore" in machine.why_off

    with contextlib.suppress(TimeoutError):
        await until(is_refused)
    assert await is_refused()
    with pytest.raises(OlderCopy):
        await coordinator.to_delete(0, 9)


async def test_a_name_that_is_taken_by_other_bytes_shows_an_older_copy():
    """Its own coordinator gives each name once; the object there may be committed and is kept."""
    coordinator = Ending()
    machine, shell, store = await running(coordinator)
    taken = object_key(CLUSTER, await coordinator.mark(), 1)
    await store.put(taken, [b"of another history"])
    batch = build_batch([Record(0, 5, None, b"v")])
    machine.get("t", 0).append(batch, required_acks=-1, now_ms=5)
    shell.perform()
    await until_refused(machine, coordinator)
    assert await store.size(taken) == len(b"of another history")
    await shell.stop()


async def test_a_broker_that_heard_of_no_commit_finds_the_notes_of_others(monkeypatch):
    """What listens has ended: another server may answer now. This broker itself wrote nothing."""
    monkeypatch.setattr("anabranch.core.diskless.broker.WATCH_PAUSE_MS", 10)
    coordinator = Ending()
    machine, shell, store = await running(coordinator)
    await coordinator.register(7, 1)
    [prepared] = await coordinator.prepare(7, 1, 1, LEASE_MS)
    note = note_key(CLUSTER, 7, prepared.object_key)
    await store.put(note, [b"committed, but this copy is older"])
    assert machine.why_off == ""
    coordinator.ends.set()
    await until_refused(machine, coordinator)
    await shell.stop()
