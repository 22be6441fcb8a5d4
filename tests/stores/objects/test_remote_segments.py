"""Descriptions of remote segments are read from each kind of store."""

from __future__ import annotations

from tests.core.remote.remote_kit import KEY, remote

from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.sidecar import encode_sidecar
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.remote_segments import read_segments, restore_segments

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"


async def put(store, segment, sidecar: bytes | None = None) -> None:
    folder = segment_folder(CLUSTER, segment.key, segment.segment_id)
    for name in upload_names(segment):
        content = b"x" * segment.byte_size
        if name == SIDECAR:
            content = encode_sidecar("creek", segment) if sidecar is None else sidecar
        await store.put(folder + name, [content])


async def test_a_lost_coordinator_is_given_what_the_store_tells(store, tmp_path):
    whole, damaged = remote(0, 9, number=1), remote(9, 20, number=2)
    await put(store, whole)
    await put(store, damaged, b"{}")
    await store.put("another-cluster/remote/00/x", [b""])
    coordinator = await SqliteCoordinator.open(str(tmp_path / "new.db"), CLUSTER)
    facts = RemoteFront(coordinator)
    restored = await restore_segments(store, facts, CLUSTER)
    known = await facts.look(KEY)
    await coordinator.close()
    assert list(known.segments) == [whole]
    left = segment_folder(CLUSTER, damaged.key, damaged.segment_id)  # no fact: it is not deleted
    kept = [each async for page in store.list(left) for each in page]
    assert len(kept) == len(upload_names(damaged))
    [finding] = restored.findings
    assert "no segment's description" in finding


async def test_a_store_without_remote_segments_gives_no_facts(store):
    assert await read_segments(store, CLUSTER) == ([], [])
