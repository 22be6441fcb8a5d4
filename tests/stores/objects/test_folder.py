"""A local folder: what is durable when, and what the disk refuses."""

from __future__ import annotations

import asyncio
import errno
import os
import time

import pytest
from tests.stores.objects.stored_kit import Pieces

from anabranch.core.diskless.objects import ObjectMissing, ObjectsAway
from anabranch.core.errors import StorageFault
from anabranch.stores.objects import folder
from anabranch.stores.objects.engines import open_objects

KEY = "objects/3f/63"


@pytest.fixture
async def store(tmp_path):
    store = await open_objects(f"file://{tmp_path}")
    yield store
    await store.close()


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What reaches the disk, in order: (call, path below the store)."""
    made: list[tuple[str, str]] = []
    names: dict[int, str] = {}

    def note(call, path):
        made.append((call, os.path.relpath(path, tmp_path)))

    def opened(path, flags, *rest, real=os.open):
        handle = real(path, flags, *rest)
        names[handle] = path
        return handle

    def synced(handle, real=os.fsync):
        note("sync", names[handle])
        real(handle)

    def linked(source, target, real=os.link):
        note("link", target)
        real(source, target)

    def made_folder(path, *rest, real=os.mkdir):
        real(path, *rest)
        note("mkdir", path)

    for name, call in (
        ("open", opened),
        ("fsync", synced),
        ("link", linked),
        ("mkdir", made_folder),
    ):
        monkeypatch.setattr(os, name, call)
    return made


async def test_an_object_has_its_name_when_it_is_synced_and_then_the_folder_is(store, calls):
    await store.put(KEY, [b"x"])
    assert calls[0][0] == "sync" and calls[0][1].startswith(folder.INCOMING)
    assert calls[1:] == [
        ("mkdir", "objects"),
        ("sync", "."),
        ("mkdir", "objects/3f"),
        ("sync", "objects"),
        ("link", KEY),
        ("sync", "objects/3f"),
    ]
    calls.clear()
    await store.put(KEY + "4", [b"x"])
    assert calls[1:] == [("link", KEY + "4"), ("sync", "objects/3f")]


async def test_a_large_object_is_synced_before_it_has_its_name(store, calls):
    await store.put_large(KEY, Pieces(b"one", b"two"))
    names = [what if what == "link" else f"{what} {place[:9]}" for what, place in calls]
    assert names.index("link") == 7
    assert names[:3] == [f"sync {folder.INCOMING}"] * 3  # the file, and each piece
    assert calls[-1] == ("sync", "objects/3f")


async def test_a_folder_that_another_process_has_made_is_synced_too(store, tmp_path, calls):
    os.makedirs(tmp_path / "objects" / "3f")
    calls.clear()
    await store.put(KEY, [b"x"])
    assert ("sync", ".") in calls and ("sync", "objects") in calls


async def test_a_put_that_comes_again_syncs_the_name_that_was_not(store, calls, monkeypatch):
    """Otherwise its broker would take the object for stored, and a power cut would take it away."""
    await store.put(KEY, [b"x"])

    def refuse(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patched:
        patched.setattr(folder, "sync_folder", refuse)
        with pytest.raises(StorageFault, match="check the disk"):
            await store.put(KEY + "4", [b"y"])
    calls.clear()
    await store.put(KEY + "4", [b"y"])
    assert calls[-1] == ("sync", "objects/3f")


async def test_a_deletion_is_synced(store, calls):
    await store.put(KEY, [b"x"])
    calls.clear()
    await store.delete([KEY, "objects/none/1"])
    assert calls == [("sync", "objects/3f")]


async def test_partial_writes_go_on_where_they_ended(store, monkeypatch):
    def writev(handle, buffers, real=os.write):
        return real(handle, b"".join(buffers)[:7])

    monkeypatch.setattr(os, "writev", writev)
    await store.put(KEY, [b"abc", b"", b"defghijklm", b"no"])
    monkeypatch.undo()
    assert (await store.read(KEY, [(0, 15)]))[0] == b"abcdefghijklmno"


@pytest.mark.parametrize("call", ["writev", "fsync", "link"])
@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, ObjectsAway, "free space"),
        (errno.EDQUOT, ObjectsAway, "free space"),
        (errno.EACCES, StorageFault, "broker's user"),
        (errno.EIO, StorageFault, "check the disk"),
    ],
)
async def test_a_disk_that_refuses_leaves_nothing(
    store, tmp_path, monkeypatch, call, number, kind, said
):
    def refuse(*_args):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(kind, match=said) as raised:
            await store.put(KEY, [b"x"])
    assert str(tmp_path) in str(raised.value)
    assert not os.listdir(tmp_path / folder.INCOMING)
    with pytest.raises(ObjectMissing):
        await store.size(KEY)


async def test_a_file_system_without_hard_links_is_refused(store, monkeypatch):
    def refuse(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted", source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageFault, match="hard links"):
        await store.check("cluster")


async def test_a_folder_that_goes_away_is_not_taken_for_missing_objects(store, tmp_path):
    await store.put(KEY, [b"x"])
    tmp_path.rename(tmp_path.with_name("away"))
    for call in (store.read(KEY, [(0, 1)]), store.size(KEY), store.put("o", [b"x"])):
        with pytest.raises(StorageFault, match="mount its volume") as raised:
            await call
        assert not isinstance(raised.value, ObjectMissing)


async def test_leftovers_are_removed_at_start_when_they_are_old(store, tmp_path):
    incoming = tmp_path / folder.INCOMING
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    long_ago = time.time() - folder.LEFTOVER_S - 60
    os.utime(incoming / "old", (long_ago, long_ago))
    again = await open_objects(store.url)
    await again.close()
    assert os.listdir(incoming) == ["new"]


async def test_leftovers_are_removed_while_brokers_run(store, tmp_path):
    """Of a broker that was killed within a put, and started again before they were old."""
    await store.put(KEY, [b"x"])
    incoming = tmp_path / folder.INCOMING
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    long_ago = time.time() - folder.LEFTOVER_S - 60
    os.utime(incoming / "old", (long_ago, long_ago))
    assert [[each.key for each in page] async for page in store.list("")] == [[KEY]]
    assert os.listdir(incoming) == ["new"]


async def test_a_listing_does_not_need_the_folder_of_leftovers(store, tmp_path):
    await store.put(KEY, [b"x"])
    (tmp_path / folder.INCOMING).rmdir()
    assert [[each.key for each in page] async for page in store.list("")] == [[KEY]]


async def test_an_object_that_was_cut_says_so(store, tmp_path):
    await store.put(KEY, [b"whole"])
    os.truncate(tmp_path / KEY, 2)
    with pytest.raises(ObjectMissing, match="2 bytes"):
        await store.read(KEY, [(0, 5)])


async def test_a_task_that_is_cancelled_as_the_disk_answers_ends(store, monkeypatch):
    loop = asyncio.get_running_loop()
    answered = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda _threads, _call: answered)
    task = asyncio.create_task(store.size(KEY))
    await asyncio.sleep(0)
    answered.set_result(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_disk_that_hangs_is_away_and_the_loop_goes_on(store, monkeypatch):
    monkeypatch.setattr(folder, "PATIENCE_S", 0.05)
    monkeypatch.setattr(os, "fsync", lambda _handle: time.sleep(0.3))
    with pytest.raises(ObjectsAway, match="has not answered"):
        await store.put(KEY, [b"x"])
