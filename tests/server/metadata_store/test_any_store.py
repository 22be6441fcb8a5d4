"""What every metadata store must do: the same tests for each engine."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.core.controller.metadata_store import (
    Committed,
    Deposed,
    Lease,
    MetadataStore,
    Snapshot,
    StoredBatch,
    StoreEnd,
    Unknown,
)
from anabranch.core.errors import StorageFault
from anabranch.server.metadata_store.opening import open_store

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
    assert await store.append(lease.epoch, 0, [batch(0, 1), batch(1, 4)]) == Committed(4)
    assert await store.end() == StoreEnd(0, 4, 1)
    assert await store.read(0, 1 << 20) == [batch(0, 1), batch(1, 4)]
    assert await store.read(2, 1) == [batch(1, 4)]
    assert await store.read(4, 1) == []


async def test_an_append_elsewhere_than_at_the_end_is_refused(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.append(lease.epoch, 0, [batch(0, 3)])
    assert await store.append(lease.epoch, 0, [batch(0, 1)]) == Deposed(lease.epoch, 3)
    assert await store.append(lease.epoch, 5, [batch(5, 6)]) == Deposed(lease.epoch, 3)
    assert (await store.end()).end_offset == 3


async def test_an_append_of_a_deposed_controller_is_refused_for_ever(store: MetadataStore) -> None:
    old = await first_lease(store, 1)
    new = await store.take_lease(await store.lease(), 2, "node-2", "there:1")
    assert new is not None and new.epoch == old.epoch + 1
    assert isinstance(await store.append(old.epoch, 0, [batch(0, 1)]), Deposed)
    assert await store.renew_lease(old) is None
    assert isinstance(await store.append(new.epoch, 0, [batch(0, 1)]), Committed)


async def test_a_lease_is_taken_only_as_it_was_seen(store: MetadataStore) -> None:
    lease = await first_lease(store)
    renewed = await store.renew_lease(lease)
    assert renewed is not None and renewed.beat == lease.beat + 1
    assert await store.take_lease(lease, 2, "node-2", "there:1") is None
    assert await store.take_lease(renewed, 2, "node-2", "there:1") is not None


async def test_a_released_lease_keeps_its_epoch_used(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.release_lease(lease)
    assert isinstance(await store.append(lease.epoch + 1, 0, [batch(0, 1)]), Deposed)
    assert (await first_lease(store, 2)).epoch == lease.epoch + 1


async def test_a_snapshot_lets_go_of_the_log_before_it(store: MetadataStore) -> None:
    lease = await first_lease(store)
    await store.append(lease.epoch, 0, [batch(0, 2), batch(2, 5), batch(5, 6)])
    await store.save_snapshot(Snapshot(5, 1, b"state"), keep_log_from=2)
    assert await store.load_snapshot() == Snapshot(5, 1, b"state")
    assert await store.end() == StoreEnd(2, 6, 1)
    await store.save_snapshot(Snapshot(3, 1, b"older"), keep_log_from=3)
    assert await store.load_snapshot() == Snapshot(5, 1, b"state")


async def test_what_was_committed_is_there_after_reopening(url: str) -> None:
    first = await open_store(url)
    assert await first.cluster_id("one") == "one"
    lease = await first_lease(first)
    await first.append(lease.epoch, 0, [batch(0, 1)])
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
        answer = await reopened.append(lease.epoch, 0, [batch(0, 1)])
    except RuntimeError:
        return
    assert isinstance(answer, Unknown)


async def test_a_restore_refuses_a_longer_store(store: MetadataStore) -> None:
    await store.cluster_id("one")
    lease = await first_lease(store)
    await store.append(lease.epoch, 0, [batch(0, 3)])
    with pytest.raises(StorageFault, match="ends at offset 3, the copy only at 1"):
        await store.restore("one", None, [batch(0, 1)])
    with pytest.raises(StorageFault, match="belongs to cluster one"):
        await store.restore("two", None, [batch(0, 9)])
    await store.restore("one", Snapshot(4, 2, b"state"), [batch(4, 6, 3)])
    assert await store.end() == StoreEnd(4, 6, 3)
    assert (await first_lease(store, 2)).epoch == 4


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
