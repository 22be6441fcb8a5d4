"""Each engine, and coordinators that are closed after their test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from coordinator_kit import CLUSTER, Engine, make_river

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.memory_coordinator import MemoryCoordinator
from anabranch.server.coordinator.memory import AsyncMemoryCoordinator
from anabranch.server.coordinator.sqlite import SqliteCoordinator

ENGINES = ("memory", "sqlite")


class Clock:
    """Milliseconds that a test sets."""

    now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms


def memory_engine() -> Engine:
    clock = Clock()
    tables = MemoryCoordinator(CLUSTER, clock)

    async def connect() -> Coordinator:
        return AsyncMemoryCoordinator(tables)

    return Engine("memory", connect, clock.advance)


def sqlite_engine(path: Path) -> Engine:
    clock = Clock()

    async def connect() -> Coordinator:
        return await SqliteCoordinator.open(str(path / "diskless.db"), CLUSTER, clock=clock)

    return Engine("sqlite", connect, clock.advance)


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    made = memory_engine() if request.param == "memory" else sqlite_engine(tmp_path)
    opened = []
    connect = made.connect

    async def connect_and_note() -> Coordinator:
        opened.append(await connect())
        return opened[-1]

    made.connect = connect_and_note
    yield made
    for each in opened:
        await each.close()


@pytest.fixture
async def coordinator(engine: Engine) -> Coordinator:
    """One coordinator on which a topic of two partitions is."""
    on = await engine.connect()
    await make_river(on)
    return on
