"""What any store must do, whatever stands behind it."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.diskless.claim import CLAIM_KEY
from anabranch.core.diskless.objects import ObjectMissing, ObjectTaken
from anabranch.core.errors import StorageFault
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.store_check import check_coordinator, record_restored

KEY = "objects/3f/000000000000003f"


async def listed(store, prefix="") -> list[str]:
    return [each.key async for page in store.list(prefix) for each in page]


async def test_what_was_put_is_read_in_ranges(store):
    await store.put(KEY, [b"header", bytearray(b"one"), memoryview(b"-another-")[1:8], b""])
    assert await store.size(KEY) == 16
    parts = await store.read(KEY, [(0, 6), (9, 7), (4, 3), (16, 0)])
    assert [bytes(part) for part in parts] == [b"header", b"another", b"ero", b""]


async def test_ranges_far_apart_and_in_any_order_are_read(store):
    whole = bytes(range(250)) * 2000
    await store.put(KEY, [whole])
    asked = [(400_000, 9), (7, 3), (100_000, 70_000), (7, 3), (499_990, 10), (165_000, 9_000)]
    parts = await store.read(KEY, asked)
    assert [bytes(part) for part in parts] == [whole[at : at + size] for at, size in asked]


async def test_an_object_of_many_buffers_is_whole(store):
    buffers = [b"%06d" % number for number in range(2500)]
    await store.put(KEY, buffers)
    [held] = await store.read(KEY, [(0, 15000)])
    assert bytes(held) == b"".join(buffers)


async def test_an_object_is_never_replaced(store):
    await store.put(KEY, [b"first"])
    with pytest.raises(ObjectTaken, match=KEY):
        await store.put(KEY, [b"second"])
    [held] = await store.read(KEY, [(0, 5)])
    assert bytes(held) == b"first"


async def test_a_put_that_is_made_again_succeeds_and_one_of_other_bytes_does_not(store):
    """An earlier attempt may have arrived; any other bytes are another broker's."""
    object_ = [b"12" * 900_000, b"", bytearray(b"345"), memoryview(b"67")]
    await store.put(KEY, object_)
    await store.put(KEY, object_)
    await store.put(KEY, [b"".join(object_)])
    for other in (
        object_[:3],
        [*object_, b"8"],
        [b"12" * 899_999 + b"13", b"34567"],
        [b"1" + b"12" * 899_999 + b"2", b"34567"],
        [],
    ):
        with pytest.raises(ObjectTaken, match=KEY):
            await store.put(KEY, other)
    assert await store.size(KEY) == 1_800_005


async def test_of_many_puts_at_once_one_wins(url, store):
    other = await open_objects(url)
    puts = [each.put(KEY, [b"%02d" % number]) for number, each in enumerate([store, other] * 6)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    await other.close()
    assert results.count(None) == 1
    assert all(isinstance(each, ObjectTaken) for each in results if each is not None)
    [held] = await store.read(KEY, [(0, 2)])
    assert int(bytes(held)) == results.index(None)


async def test_what_is_not_there_is_missing(store):
    for call in (store.size(KEY), store.read(KEY, [(0, 1)])):
        with pytest.raises(ObjectMissing, match=f"{KEY}"):
            await call


@pytest.mark.parametrize("asked", [(0, 6), (4, 2), (5, 1), (900, 1)])
async def test_a_range_beyond_the_end_is_missing(store, asked):
    await store.put(KEY, [b"bytes"])
    with pytest.raises(ObjectMissing, match="5 bytes"):
        await store.read(KEY, [(0, 2), asked])


async def test_deleted_objects_are_gone_and_those_that_were_gone_count(store):
    await store.put(KEY, [b"x"])
    await store.put("other", [b"y"])
    assert sorted(await store.delete([KEY, "objects/none"])) == sorted([KEY, "objects/none"])
    assert await listed(store) == ["other"]
    with pytest.raises(ObjectMissing):
        await store.size(KEY)
    assert await store.delete([]) == []
    await store.put(KEY, [b"again"])


async def test_objects_are_listed_by_name_with_size_and_time(store):
    for key in ("b/2", "a", "b-/1", "b/10", "c/d/e"):
        await store.put(key, [key.encode()])
    found = [each async for page in store.list("") for each in page]
    assert [each.key for each in found] == ["a", "b-/1", "b/10", "b/2", "c/d/e"]
    assert [each.byte_size for each in found] == [len(each.key) for each in found]
    assert all(each.modified_ms > 1_700_000_000_000 for each in found)
    assert await listed(store, "b/") == ["b/10", "b/2"]
    assert await listed(store, "b/1") == ["b/10"]
    assert await listed(store, "none/") == []


async def test_a_name_that_leads_out_is_refused(store):
    for key in ("../up", "/etc/passwd", "a//b", "a/../b", "", ".hidden", "a b", "x" * 600):
        with pytest.raises(StorageFault, match="cannot be an object's name"):
            await store.put(key, [b"x"])


async def test_a_store_of_this_cluster_passes_its_check_and_keeps_no_probe(store):
    await store.check("cluster-1")
    await store.check("cluster-1")
    assert await listed(store) == [CLAIM_KEY]


async def test_brokers_that_check_at_once_agree(store):
    await asyncio.gather(*(store.check("cluster-1") for _ in range(4)))
    assert await listed(store) == [CLAIM_KEY]


async def test_a_store_of_another_cluster_is_refused(store):
    await store.check("cluster-1")
    with pytest.raises(StorageFault, match=r"belongs to cluster 'cluster-1'.*of its own"):
        await store.check("cluster-2")


@pytest.mark.parametrize(
    "held", [b"", b"{}", b"\xff\xfe", b'{"cluster_id": 3}', b'{"a":' + b"[" * 9000]
)
async def test_a_claim_that_names_no_cluster_is_refused(store, held):
    await store.put(CLAIM_KEY, [held])
    with pytest.raises(StorageFault, match=CLAIM_KEY):
        await store.check("cluster-1")


async def test_a_coordinator_that_was_made_anew_is_refused_until_it_is_restored(store):
    marks = ["first", "second", "third"]
    results = await asyncio.gather(
        *(check_coordinator(store, "c", mark) for mark in marks), return_exceptions=True
    )
    assert results.count(None) == 1
    [winner] = [mark for mark, result in zip(marks, results, strict=True) if result is None]
    await check_coordinator(store, "c", winner)
    for number in range(2):
        with pytest.raises(StorageFault, match="anabranch diskless restore"):
            await check_coordinator(store, "c", f"new-{number}")
        await record_restored(store, "c", f"new-{number}")
        await check_coordinator(store, "c", f"new-{number}")
    with pytest.raises(StorageFault, match="names coordinator new-1, and this is first"):
        await check_coordinator(store, "c", "first")
    await check_coordinator(store, "another", "first")


async def test_a_record_that_names_no_coordinator_is_refused(store):
    await store.put("c/coordinators/000000", [b"{}"])
    with pytest.raises(StorageFault, match="names no coordinator"):
        await check_coordinator(store, "c", "first")


async def test_a_store_that_replaces_is_refused(store, monkeypatch):
    taken = store.put

    async def put(key, buffers):
        if (await store.delete([key])) and key != CLAIM_KEY:
            await taken(key, buffers)

    monkeypatch.setattr(store, "put", put)
    with pytest.raises(StorageFault, match="conditional writes"):
        await store.check("cluster-1")
