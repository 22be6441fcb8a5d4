"""A SQLite store whose volume is full: room is made for it, and the transaction comes again."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.node_kit import START_SECONDS, ThreadNode

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.store import Committed, Snapshot, StoredBatch, Unknown
from anabranch.server.files import RESERVE
from anabranch.stores.metadata.sqlite import SqliteStore

LARGE = bytes(200_000)


class Full:
    """A store whose file may not grow any more, until room is made."""

    def __init__(self, store):
        self.store, self.asked = store, 0
        store._connection.execute("PRAGMA max_page_count=1")  # SQLite takes the present count

    def make_room(self, _fault):
        self.asked += 1
        self.store._connection.execute("PRAGMA max_page_count=100000")
        return True


@pytest.fixture
async def store(tmp_path):
    store = await SqliteStore.open(str(tmp_path / "metadata.db"))
    yield store
    await store.close()


async def test_an_append_for_which_room_is_made_is_committed_once(store):
    lease = await store.take_lease(None, 1, "a", "")
    full = Full(store)
    store.make_room = full.make_room
    answer = await store.append(lease, 0, [StoredBatch(0, 3, lease.epoch, LARGE)])
    assert (answer, full.asked) == (Committed(3), 1)
    assert [batch.end_offset for batch in await store.read(0, 1 << 20)] == [3]


async def test_a_snapshot_finds_room_too(store):
    full = Full(store)
    store.make_room = full.make_room
    await store.save_snapshot(Snapshot(5, 1, LARGE), keep_log_from=0)
    assert full.asked == 1
    assert (await store.load_snapshot()).end_offset == 5


async def test_where_there_is_no_room_to_make_the_remedy_is_said(store):
    lease = await store.take_lease(None, 1, "a", "")
    Full(store)
    answer = await store.append(lease, 0, [StoredBatch(0, 3, lease.epoch, LARGE)])
    assert isinstance(answer, Unknown)
    assert "free space on its volume" in answer.cause
    with pytest.raises(StorageFault, match="free space on its volume"):
        await store.save_snapshot(Snapshot(5, 1, LARGE), keep_log_from=0)


def test_a_node_gives_its_reserve_to_the_store_beside_its_folders(tmp_path):
    running = ThreadNode(tmp_path).start()
    try:
        reserve = tmp_path / RESERVE
        assert reserve.exists()
        future = asyncio.run_coroutine_threadsafe(made_room(running.node), running._loop)
        assert future.result(START_SECONDS)
        assert not reserve.exists()
    finally:
        running.stop()


async def made_room(node):
    return node._store.make_room(DiskFull("no space left"))


async def test_a_file_that_was_replaced_is_not_called_read_only(store, tmp_path):
    """Not a full volume, but as little to be written to."""
    lease = await store.take_lease(None, 1, "a", "")
    path = tmp_path / "metadata.db"
    (tmp_path / "backup.db").write_bytes(path.read_bytes())
    (tmp_path / "backup.db").replace(path)
    answer = await store.append(lease, 0, [StoredBatch(0, 3, lease.epoch, b"batch")])
    assert isinstance(answer, Unknown)
    assert "was moved, replaced or removed while it was open" in answer.cause
    assert "read-only" not in answer.cause
