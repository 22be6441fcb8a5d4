"""Where the diskless topics of a run lie, and how that fails: a folder of objects, a coordinator.

What: `away` takes the folder of objects from all brokers; `hold` keeps everybody from the
coordinator, by its lock or by a lock of its tables; `verify` compares objects, rows and manifests
when all is over. Rule kept: nothing here removes what was committed.
Not here: what clients were told (`check`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg

from anabranch.server.coordinator.opening import open_coordinator
from anabranch.server.coordinator.postgres import SCHEMA
from anabranch.server.objects.opening import open_objects
from anabranch.server.objects.verifying import read_store
from anabranch.server.objects.verifying import verify as verify_store
from anabranch.server.one_machine import COORDINATOR, OBJECTS
from chaos.stores import PostgresDatabase, SqliteFile, Turn


class DisklessStorage:
    """Objects in a folder; the coordinator in SQLite, or where the metadata is."""

    def __init__(self, folder: Path, store: SqliteFile | PostgresDatabase) -> None:
        self._objects = folder / OBJECTS
        self._file = folder / COORDINATOR
        is_file = isinstance(store, SqliteFile)
        self.coordinator_url = f"sqlite://{self._file}" if is_file else store.new_database()
        self.storage_url = f"file://{self._objects}"
        self._is_file = is_file
        self._objects_turn, self._turn = Turn(), Turn()

    @property
    def settings(self) -> dict[str, str]:
        """What the nodes are told."""
        return {
            "diskless.storage.system.enable": "true",
            "diskless.storage.url": self.storage_url,
            "diskless.coordinator.url": self.coordinator_url,
        }

    @contextlib.contextmanager
    def away(self) -> Iterator[str]:
        """No broker finds its objects, or stores any."""
        aside = self._objects.with_name("objects-away")
        with self._objects_turn:
            os.rename(self._objects, aside)
            try:
                yield "take the objects away"
            finally:
                os.rename(aside, self._objects)

    @contextlib.contextmanager
    def hold(self) -> Iterator[str]:
        """Nobody gets an answer of the coordinator."""
        with self._turn, self._locked() if self._is_file else self._tables_locked():
            yield "hold the coordinator"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(f"{self._file}.turn") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _tables_locked(self) -> Iterator[None]:
        with psycopg.connect(self.coordinator_url) as connection:
            connection.execute(f"LOCK TABLE {SCHEMA}.logs IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()

    def verify(self) -> list[str]:
        """What is wrong with objects, rows and manifests, all nodes being stopped."""
        return asyncio.run(self._verified())

    async def _verified(self) -> list[str]:
        async with contextlib.AsyncExitStack() as stack:
            store = await open_objects(self.storage_url)
            stack.push_async_callback(store.close)
            held = await read_store(store)
            coordinator = await open_coordinator(self.coordinator_url, held.cluster_id)
            stack.push_async_callback(coordinator.close)
            found = await verify_store(store, coordinator, held, is_whole=True)
        return [
            f"{each.kind.value}: {each.place}: {each.detail}"
            for each in found.findings
            if each.kind.is_damage
        ]
