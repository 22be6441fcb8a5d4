"""What chaos does to the storage of diskless topics, and what it says of what is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.s3_server import S3Server
from bench.slow_link import WELL, Condition
from chaos.diskless import DisklessStorage
from chaos.objects import FolderObjects
from chaos.stores import Nothing, SqliteFile
from chaos.volume import is_possible

from anabranch.core.diskless.layout import Header, encode
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.diskless.rows import Commit, CommitState
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects import cloud
from anabranch.stores.objects.engines import open_objects

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "a-cluster"
LEASE_MS = 600_000
needs_volume = pytest.mark.skipif(
    os.geteuid() != 0 or not is_possible(), reason="mounts need root and loop devices"
)


@pytest.fixture
def storage(tmp_path):
    return DisklessStorage(
        tmp_path, SqliteFile(tmp_path), FolderObjects(tmp_path, has_mounts=False)
    )


async def prepared(storage, brokers, *, is_put=True):
    """One object of each broker; the coordinator and the store stay open."""
    store = await open_objects(storage.objects.url)
    await store.check(CLUSTER)
    coordinator = await open_coordinator(storage.coordinator_url, CLUSTER)
    found = []
    for each in brokers:
        await coordinator.register(each, 1)
        [one] = await coordinator.prepare(each, 1, 1, LEASE_MS)
        if is_put:
            await store.put(
                one.object_key, encode(Header(CLUSTER, each, one.object_id), []).buffers
            )
        found.append(one)
    return store, coordinator, found


async def test_what_a_broker_prepared_is_collected_and_its_commit_refused(storage):
    store, coordinator, (mine, other) = await prepared(storage, (1, 2))
    assert await asyncio.to_thread(storage.outlive_leases, 1) == 1
    commits = [Commit(*each[:2], 9, broker, 1, ()) for broker, each in ((1, mine), (2, other))]
    answers = [(await coordinator.commit(each)).state for each in commits]
    assert answers == [CommitState.REFUSED, CommitState.COMMITTED]
    assert [each.key async for page in store.list(CLUSTER) for each in page] == [other.object_key]
    await coordinator.close()
    await store.close()


async def test_what_nothing_needs_is_collected_at_the_end(storage):
    store, coordinator, (lost, _) = await prepared(storage, (1, 2))
    await asyncio.to_thread(storage.outlive_leases, 1)
    await store.put(lost.object_key, encode(Header(CLUSTER, 1, lost.object_id), []).buffers)
    await coordinator.close()
    settled = await asyncio.to_thread(storage.settle)
    assert (settled.objects, settled.collected, settled.orphans, settled.findings) == (0, 1, 1, ())
    await store.close()


async def test_what_the_collector_leaves_behind_is_a_finding(storage):
    store, coordinator, _ = await prepared(storage, ())
    header = Header(CLUSTER, 1, 7)
    await store.put(f"{CLUSTER}/wal/00/{7:019d}-another", encode(header, []).buffers)
    await coordinator.close()
    settled = await asyncio.to_thread(storage.settle)
    assert len(settled.findings) == 1 and "object unknown" in settled.findings[0]
    await store.close()


async def test_an_object_of_no_remote_segment_is_a_finding(storage):
    store, coordinator, _ = await prepared(storage, ())
    await store.put(f"{CLUSTER}/remote/00/{bytes(16).hex()}-0/{bytes(16).hex()}/x.log", [b"x"])
    await coordinator.close()
    settled = await asyncio.to_thread(storage.settle)
    assert len(settled.findings) == 1 and "segment unknown" in settled.findings[0]
    assert "0 remote segments" in settled.line()
    await store.close()


def test_a_coordinator_whose_turn_a_paused_broker_has_holds_up_no_fault(storage, tmp_path):
    async def prepare():
        store, coordinator, _ = await prepared(storage, (1,))
        await coordinator.close()
        await store.close()

    asyncio.run(prepare())
    with storage.hold(), pytest.raises(Nothing), storage._locked():
        pass


@pytest.fixture(scope="module")
def s3():
    server = S3Server()
    yield server
    server.stop()


async def test_an_s3_server_behind_a_link_is_away_and_comes_back(s3, monkeypatch):
    monkeypatch.setattr(cloud, "PATIENCE_S", 0.3)
    store = await open_objects(s3.url("one"))
    await store.put("before", [b"bytes"])
    for condition in (
        Condition(is_silent=True),
        Condition(is_deaf=True),
        Condition(is_broken=True),
    ):
        s3.become(condition)
        with pytest.raises(ObjectsAway):
            await store.read("before", [(0, 5)])
        s3.become(WELL)
        [held] = await store.read("before", [(0, 5)])
        assert bytes(held) == b"bytes"


async def test_a_put_whose_answer_was_lost_has_happened(s3, monkeypatch):
    monkeypatch.setattr(cloud, "PATIENCE_S", 0.3)
    store = await open_objects(s3.url("two"))
    s3.become(Condition(is_deaf=True))
    with pytest.raises(ObjectsAway):
        await store.put("lost", [b"answer"])
    s3.become(WELL)
    assert await store.size("lost") == 6


VOLUME = """
import os, sys, threading, time
from pathlib import Path
from chaos.objects import FolderObjects
folder = Path(sys.argv[1])
objects = FolderObjects(folder, has_mounts=True)
path = Path(objects.url.removeprefix("file://"))
(path / "one").write_bytes(b"1")
done = threading.Event()
def write():
    (path / "two").write_bytes(b"2")
    done.set()
with objects.cut(0.0):
    threading.Thread(target=write).start()
    print(done.wait(0.3))
print(done.wait(10))
with objects.full():
    try:
        (path / "three").write_bytes(bytes(10_000))
    except OSError as fault:
        print(fault.errno)
with objects.away():
    print(path.exists())
with objects.slow(0.0):
    for number in range(3):
        (path / f"slow-{number}").write_bytes(b"s")
(path / "four").write_bytes(bytes(10_000))
objects.close()
"""


@needs_volume
def test_a_file_system_stands_still_is_full_and_goes_on(tmp_path):
    begin_s = time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", "--", sys.executable, "-c", VOLUME, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True", "28", "False"]
    kept = tmp_path / "diskless-objects"
    assert {"one", "two", "four", "slow-2"} <= {each.name for each in kept.iterdir()}
    assert list(tmp_path.glob("objects-volume*")) == []
    assert time.monotonic() - begin_s < 30
