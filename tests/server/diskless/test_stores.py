"""What a node says at its start about where diskless records shall lie."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.errors import StorageFault
from anabranch.server.config import load_config
from anabranch.server.diskless.stores import INTERVAL_MS, Stores
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.memory import MemoryStore

ON = "diskless.storage.system.enable=true"


def config(tmp_path, *settings):
    return load_config(None, [f"log.dirs={tmp_path}/node", ON, *settings])


async def test_without_the_setting_nothing_is_opened(tmp_path):
    assert await Stores.open(load_config(None, [f"log.dirs={tmp_path}"]), "c") is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], "diskless.storage.url is empty"),
        (["diskless.storage.url=ftp://there"], "names no known store"),
        (["diskless.storage.url=file://objects"], "must be absolute"),
        (["diskless.storage.url=file:///nowhere/at/all"], "/nowhere/at/all"),
        (
            ["diskless.storage.url=memory://a", "diskless.coordinator.url=mysql://x"],
            "names no known coordinator",
        ),
        (
            [
                "diskless.storage.url=memory://a", "process.roles=broker",
                "controller.quorum.bootstrap.servers=127.0.0.1:1",
            ],
            "diskless.coordinator.url is empty",
        ),
    ],
)  # fmt: skip
async def test_a_wrong_url_is_said_at_the_start(tmp_path, settings, said):
    with pytest.raises(StorageFault, match=said):
        await Stores.open(config(tmp_path, *settings), "c")


async def test_what_belongs_to_another_cluster_is_refused(tmp_path):
    (tmp_path / "node").mkdir()
    (tmp_path / "objects").mkdir()
    (tmp_path / "others").mkdir()
    mine = config(tmp_path, f"diskless.storage.url=file://{tmp_path}/objects")
    stores = await Stores.open(mine, "first")
    assert stores is not None
    assert stores.interval_ms == 0
    await stores.close()
    with pytest.raises(StorageFault, match="'first'"):
        await Stores.open(mine, "second")
    another = config(tmp_path, f"diskless.storage.url=file://{tmp_path}/others")
    with pytest.raises(StorageFault, match="first"):
        await Stores.open(another, "second")


REMOTE = "remote.log.storage.system.enable=true"
OFF = "diskless.storage.system.enable=false"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            [OFF, REMOTE],
            r"remote\.log\.storage\.system\.enable is true and remote\.storage\.url is",
        ),
        (
            [OFF, REMOTE, "remote.storage.url=ftp://there"],
            r"remote\.storage\.url=ftp://there names",
        ),
        (
            [REMOTE, "remote.storage.url=memory://a", "diskless.storage.url=memory://b"],
            r"remote\.storage\.url and diskless\.storage\.url differ",
        ),
        ([REMOTE, "remote.storage.url=memory://a"], r"diskless\.storage\.url is empty"),
    ],
)
async def test_a_wrong_url_of_remote_logs_is_said_at_the_start(tmp_path, settings, said):
    with pytest.raises(StorageFault, match=said):
        await Stores.open(config(tmp_path, *settings), "c")


@pytest.mark.parametrize("with_diskless", [True, False])
@pytest.mark.parametrize("own", ["remote.storage.url", "diskless.storage.url", "both"])
async def test_remote_logs_have_the_claimed_store_of_diskless_records(tmp_path, with_diskless, own):
    """Whatever names it, it is one store, and no other cluster's."""
    (tmp_path / "node").mkdir()
    (tmp_path / "objects").mkdir()
    names = ("remote.storage.url", "diskless.storage.url") if own == "both" else (own,)
    if with_diskless and own == "remote.storage.url":
        names = ("diskless.storage.url",)
    urls = [f"{name}=file://{tmp_path}/objects" for name in names]
    mine = config(tmp_path, REMOTE, *urls, *([] if with_diskless else [OFF]))
    stores = await Stores.open(mine, "first")
    assert stores is not None
    await stores.close()
    with pytest.raises(StorageFault, match="'first'") as caught:
        await Stores.open(mine, "second")
    named = "diskless.storage.url" if with_diskless else names[0]
    assert named in str(caught.value)


async def test_an_interval_that_is_set_holds_on_any_store(tmp_path):
    (tmp_path / "node").mkdir()
    url, interval = "diskless.storage.url=memory://b", "diskless.produce.commit.interval.ms=7"
    stores = await Stores.open(config(tmp_path, url, interval), "c")
    assert stores is not None
    assert stores.interval_ms == 7
    assert INTERVAL_MS == 250
    await stores.close()


@pytest.mark.parametrize("while_opening", [True, False])
async def test_the_object_store_is_closed_whatever_becomes_of_the_coordinator(
    tmp_path, monkeypatch, while_opening
):
    """Who is cancelled again while it closes the first leaves nothing of the second."""
    (tmp_path / "node").mkdir()
    closed = []

    async def refuse(*_):
        raise StorageFault("refused")

    async def cut_off(_):
        raise asyncio.CancelledError

    async def close(objects):
        closed.append(objects)

    monkeypatch.setattr(SqliteCoordinator, "close", cut_off)
    monkeypatch.setattr(MemoryStore, "close", close)
    if while_opening:
        monkeypatch.setattr("anabranch.server.diskless.stores.claim_store", refuse)

    async def open_and_close():
        stores = await Stores.open(config(tmp_path, "diskless.storage.url=memory://e"), "c")
        await stores.close()

    with pytest.raises(asyncio.CancelledError):
        await open_and_close()
    monkeypatch.undo()
    assert len(closed) == 1
