"""The controller's shell on a real SQLite store, and the node's copy of the log."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_kit import eventually

from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.tenure import effects
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.errors import ApiError, StorageFault
from anabranch.core.metadata.batches import encode_batch
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import everything
from anabranch.core.metadata.store import StoredBatch
from anabranch.core.metadata.store_check import CopyEnd, store_fault
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import AbortTransactionRecord, TopicRecord
from anabranch.server import controller
from anabranch.server.controller import MOST_LOGGED, ControllerShell
from anabranch.server.files import RealFiles
from anabranch.server.logs import FIELDS
from anabranch.server.metadata_restore import restore_store
from anabranch.stores.metadata.sqlite import SqliteStore

CONFIG = BrokerConfig.of()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(f"{tmp_path}/metadata.db")
    await opened.cluster_id("test-cluster")
    yield opened
    await opened.close()


def new_shell(store: SqliteStore, **rest: Any) -> ControllerShell:
    return ControllerShell(1, "test-cluster", store, CONFIG, on_changed=lambda _keys: None, **rest)


def topic(number: int) -> Propose:
    record = TopicRecord(name=f"t{number}", topic_id=TopicId(number.to_bytes(16)))
    return Propose(Result((record,), number))


async def settled(shell: ControllerShell) -> None:
    await shell.submit(Propose(Result((), None)))


async def test_concurrent_decisions_share_transactions_and_survive(store: SqliteStore) -> None:
    shell = new_shell(store)
    await shell.start()
    await settled(shell)
    before = store.statistics()["append_transactions"]
    futures = [shell.submit(topic(number)) for number in range(1, 101)]
    assert await asyncio.gather(*futures) == list(range(1, 101))
    assert store.statistics()["append_transactions"] - before <= 5
    image = shell.controller.image
    await shell.stop()
    again = new_shell(store)
    await again.start()
    await settled(again)
    assert again.controller.epoch == 2
    assert again.controller.image.topics_by_id == image.topics_by_id
    assert again.controller.image.offset == image.offset + 1  # the new epoch's mark
    await again.stop()


async def test_an_answer_waits_for_what_it_stands_on(store: SqliteStore) -> None:
    shell = new_shell(store)
    await shell.start()
    await settled(shell)
    write = shell.submit(topic(1))
    read = shell.submit(Propose(Result((), "seen")))
    assert not read.done()
    await asyncio.gather(write, read)
    await shell.stop()


async def test_a_deposed_controller_answers_not_controller(store: SqliteStore) -> None:
    shell = new_shell(store)
    await shell.start()
    await settled(shell)
    taken = await store.take_lease(await store.lease(), 2, "node-2", "there:1")
    assert taken is not None
    with pytest.raises(ApiError, match="not the controller"):
        await shell.submit(topic(1))
    assert not shell.controller.active
    with pytest.raises(ApiError):
        await shell.submit(topic(2))
    await shell.stop()
    assert await store.lease() == taken


async def copy_of(store: SqliteStore, folder: Path) -> MetadataCopy:
    RealFiles().make_dirs(str(folder))
    copy = MetadataCopy.open(RealFiles(), str(folder), time.time_ns() // 1_000_000)
    for batch in await store.read(copy.image.next_offset, 1 << 30):
        copy.append(batch.payload, 1)
    return copy


async def test_the_copy_makes_the_image_again(store: SqliteStore, tmp_path: Path) -> None:
    shell = new_shell(store)
    await shell.start()
    await asyncio.gather(*(shell.submit(topic(number)) for number in range(1, 30)))
    copy = await copy_of(store, tmp_path / "copy")
    assert copy.image == shell.controller.image
    copy.write_snapshot(copy.image, 1)
    await shell.submit(topic(99))
    for batch in await store.read(copy.image.next_offset, 1 << 30):
        copy.append(batch.payload, 1)
    end = copy.end
    copy.close()
    opened = MetadataCopy.open(RealFiles(), str(tmp_path / "copy"), 1)
    assert opened.image == shell.controller.image
    assert opened.end == end
    assert set(everything(opened.image).created_topics) == set(opened.image.topics_by_id)
    opened.close()
    await shell.stop()


async def test_a_store_whose_disk_spoiled_it_is_named_and_what_helps(
    store: SqliteStore, tmp_path: Path
) -> None:
    shell = new_shell(store)
    await shell.start()
    await shell.submit(topic(1))
    await shell.stop()
    database = sqlite3.connect(store.path)
    payload = bytearray(database.execute("SELECT payload FROM log").fetchall()[-1][0])
    payload[-3] ^= 1
    database.execute(
        "UPDATE log SET payload = ? WHERE first_offset = (SELECT max(first_offset) FROM log)",
        (bytes(payload),),
    )
    database.commit()
    database.close()
    with pytest.raises(StorageFault, match=r"does not match its checksum.* metadata restore"):
        await new_shell(store).start()


async def test_a_store_that_was_lost_or_went_back_is_noticed_and_restored(
    store: SqliteStore, tmp_path: Path
) -> None:
    shell = new_shell(store)
    await shell.start()
    await asyncio.gather(*(shell.submit(topic(number)) for number in range(1, 10)))
    image = shell.controller.image
    await shell.stop()
    copy = await copy_of(store, tmp_path / "copy")
    end = copy.end
    copy.close()
    (tmp_path / "copy" / "meta.properties").write_text("cluster.id=test-cluster\n")
    empty = await SqliteStore.open(f"{tmp_path}/empty.db")
    with pytest.raises(StorageFault, match="anabranch metadata restore"):
        await new_shell(empty, copy=end).start()
    assert await empty.lease() is None
    await empty.close()
    url = f"sqlite://{tmp_path}/empty.db"
    restored = await restore_store(RealFiles(), [str(tmp_path / "copy")], url)
    assert restored.end_offset == image.next_offset
    again = await SqliteStore.open(f"{tmp_path}/empty.db")
    revived = new_shell(again, copy=end)
    await revived.start()
    await settled(revived)
    assert revived.controller.image.topics_by_id == image.topics_by_id
    await revived.stop()
    with pytest.raises(StorageFault, match="nothing was changed"):
        await restore_store(RealFiles(), [str(tmp_path / "copy")], url)
    await again.close()


async def test_a_copy_with_records_that_nothing_here_follows_is_refused(
    store: SqliteStore, tmp_path: Path
) -> None:
    shell = new_shell(store)
    await shell.start()
    await shell.submit(topic(1))
    await shell.stop()
    copy = await copy_of(store, tmp_path / "copy")
    batch = encode_batch(
        [AbortTransactionRecord()], base_offset=copy.end.end_offset, epoch=1, now_ms=1
    )
    copy.log.append_as_follower(bytearray(batch), now_ms=1)
    copy.close()
    (tmp_path / "copy" / "meta.properties").write_text("cluster.id=test-cluster\n")
    with pytest.raises(StorageFault, match=r"cannot replay: .*AbortTransactionRecord; nothing was"):
        await restore_store(RealFiles(), [str(tmp_path / "copy")], f"sqlite://{tmp_path}/new.db")
    assert not (tmp_path / "new.db").exists()


def test_how_a_store_disagrees_with_a_copy() -> None:
    copy = CopyEnd("folder", 10, 2, 9, b"last")
    assert store_fault(CopyEnd("folder"), 0, None, "s") is None
    assert store_fault(copy, 12, b"last", "s") is None
    assert store_fault(copy, 12, None, "s") is None
    assert "lost" in (store_fault(copy, 0, None, "s") or "")
    assert "went back to offset 9" in (store_fault(copy, 9, None, "s") or "")
    parted = store_fault(copy, 12, b"else", "s") or ""
    assert "other records at offset 9" in parted
    assert "If the store is right, move the folder of this copy away" in parted
    assert MetadataImage.empty().offset == -1


async def test_a_lease_of_another_node_is_waited_for(store: SqliteStore) -> None:
    taken = await store.take_lease(await store.lease(), 2, "node-2", "there:1")
    assert taken is not None
    shell = new_shell(store)
    await shell.start()
    assert not shell.controller.active
    assert await store.append(taken, 0, [StoredBatch(0, 1, 1, b"x")])
    await shell.stop()


async def test_a_lease_of_the_same_node_is_free_when_nobody_listens_where_its_holder_did(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process with a taken id waits as any other; a restarted one need not (R17)."""
    monkeypatch.setattr(controller, "TIMING", LeaseTimes(600_000))
    held: list[asyncio.StreamWriter] = []
    listener = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    taken = await store.take_lease(await store.lease(), 1, "another process", f"127.0.0.1:{port}")
    shell = new_shell(store)
    shell.tenure.candidacy.endpoint = "127.0.0.1:1"
    await shell.start()
    await eventually(lambda: held)
    assert await store.lease() == taken
    listener.close()
    for each in held:
        each.close()
    await eventually(lambda: shell.controller.active)
    await shell.stop()


async def test_a_lease_of_the_same_node_at_the_same_place_is_free(store: SqliteStore) -> None:
    """Only one process can listen there."""
    taken = await store.take_lease(await store.lease(), 1, "killed", "127.0.0.1:1")
    assert taken is not None
    shell = new_shell(store)
    shell.tenure.candidacy.endpoint = "127.0.0.1:1"
    await shell.start()
    assert shell.controller.active
    await shell.stop()


async def test_a_lease_of_the_same_folder_is_free_where_a_node_listens_on_every_address(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one process can hold a folder; one of this id with another waits (R17)."""
    monkeypatch.setattr(controller, "TIMING", LeaseTimes(600_000))
    taken = await store.take_lease(await store.lease(), 1, "mine/1", "")
    assert taken is not None
    twin = new_shell(store, home="another")
    await twin.start()
    assert not twin.controller.active
    assert await store.lease() == taken
    restarted = new_shell(store, home="mine")
    await restarted.start()
    assert restarted.controller.active
    await twin.stop()
    await restarted.stop()


async def test_a_decision_about_thousands_of_partitions_fills_no_log(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody waits while lines are written."""
    shell = new_shell(store)
    reasons = tuple(
        Reason(Code.LEADER_ELECTED, f"t-{number} is led by 1") for number in range(5_000)
    )
    with caplog.at_level(logging.INFO, logger="anabranch"):
        shell._tell(effects.Decided(reasons[:2]))
        assert len(lines_of(caplog)) == 2
        caplog.clear()
        shell._tell(effects.Decided(reasons))
    assert len(lines_of(caplog)) == MOST_LOGGED + 1
    assert getattr(lines_of(caplog)[-1], FIELDS) == {"lines": 5_000 - MOST_LOGGED}


def lines_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Those of the controller: the loop may tell meanwhile what became of another test's future."""
    return [each for each in caplog.records if each.name == "anabranch.controller"]
