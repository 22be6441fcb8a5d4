"""Who has taken the lease and reads for long keeps it meanwhile: R17, on large clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_kit import CLUSTER, FEW_BYTES, SECONDS, eventually, topic

from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import committed
from anabranch.core.controller.tenure.lease import LeaseTimes
from anabranch.core.metadata.store import Lease
from anabranch.core.outcome import Propose
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server import controller as controller_module
from anabranch.server.controller import ControllerShell
from anabranch.stores.metadata.sqlite import SqliteStore


class Counting:
    """A store that says when the lease was renewed; with `reads_wait`, what is read comes then."""

    def __init__(self, store: SqliteStore, *, reads_wait: bool = True) -> None:
        self.real = store
        self.reads_wait = reads_wait
        self.was_renewed = asyncio.Event()
        self.may_go_on = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def renew_lease(self, lease: Lease) -> Lease | None:
        renewed = await self.real.renew_lease(lease)
        self.was_renewed.set()
        self.may_go_on.set()
        return renewed

    async def read(self, from_offset: int, max_bytes: int) -> Any:
        if self.reads_wait:
            async with asyncio.timeout(SECONDS):
                await self.was_renewed.wait()
        return await self.real.read(from_offset, max_bytes)


@pytest.fixture
async def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(controller_module, "TIMING", LeaseTimes(renew_ms=10))
    opened = await SqliteStore.open(f"{tmp_path}/metadata.db")
    await opened.cluster_id(CLUSTER)
    yield opened
    await opened.close()


def new_shell(store: Any, **settings: str) -> ControllerShell:
    config = BrokerConfig.of(settings)
    return ControllerShell(1, CLUSTER, store, config, on_changed=lambda _keys: None)


async def test_the_lease_is_renewed_while_the_store_is_read(real: SqliteStore) -> None:
    shell = new_shell(Counting(real))
    await shell.start()
    assert shell.controller.active and shell.controller.epoch == 1
    await shell.stop()


async def test_the_lease_is_renewed_while_what_was_read_is_understood(
    real: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of hundreds of thousands of partitions: the loop has other things to do."""
    before = new_shell(real, **{FEW_BYTES: "1000"})
    await before.start()
    for number in range(0, 100, 10):
        records = tuple(map(topic, range(number, number + 10)))
        await before.submit(Propose(Result(records, None)))
    await eventually(lambda: before.controller.log.start_offset > 0)
    known = set(before.controller.image.topic_ids_by_name)
    await before.stop()
    store, understand, waited = Counting(real, reads_wait=False), committed.understood, []

    def slowly(payload: bytes) -> Any:
        waited.append(store.may_go_on.wait(SECONDS))
        return understand(payload)

    monkeypatch.setattr(committed, "understood", slowly)
    shell = new_shell(store)
    await shell.start()
    assert shell.controller.active
    assert waited and all(waited)
    assert set(shell.controller.image.topic_ids_by_name) == known
    await shell.stop()


async def test_who_lost_the_lease_while_it_read_does_not_take_office(real: SqliteStore) -> None:
    class Robbed(Counting):
        async def read(self, from_offset: int, max_bytes: int) -> Any:
            if not self.was_renewed.is_set():
                assert await real.take_lease(await real.lease(), 2, "another", "there:1")
            return await super().read(from_offset, max_bytes)

    shell = new_shell(Robbed(real))
    await shell.start()
    assert not shell.controller.active
    lease = await real.lease()
    assert lease is not None and lease.holder == 2
    await shell.stop()
