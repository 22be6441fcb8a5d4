"""The store of a run: objects, a coordinator, how that fails, and what must be left.

What: `hold` keeps everybody from the coordinator, by its lock or by a lock of its tables;
`outlive_leases` has it forget what a broker has prepared, as it does after ten minutes; `settle`
collects, when all is over, what nothing needs, and compares objects, rows and manifests. Rule kept:
nothing here removes what was committed. Not here: how objects fail (`objects`), what clients were
told (`check`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.garbage import GarbageRounds, Pace
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import StorageFault
from anabranch.server.diskless.garbage_collector import Collector
from anabranch.server.one_machine import COORDINATOR
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.postgres import SCHEMA
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.remote_verification import verify as verify_remote
from anabranch.stores.objects.verification import owner_of, read_store
from anabranch.stores.objects.verification import verify as verify_store
from chaos.objects import FolderObjects, S3Objects
from chaos.stores import Nothing, PostgresDatabase, SqliteFile, Turn, wait_at_most

LOCK_SECONDS = 2.0
"""How long the coordinator's lock is waited for: its holder may be a paused broker."""
AT_ONCE = Pace(round_ms=0, grace_ms=0, retry_ms=0, list_ms=0, orphan_ms=0)
"""For a stopped cluster: nothing is put and nothing is read any more."""
LEFT_BEHIND = (Kind.OBJECT_UNKNOWN, Kind.OBJECT_UNUSED, Kind.SEGMENT_UNKNOWN)


class Settled(NamedTuple):
    """What was left of diskless topics once everything was over."""

    objects: int = 0
    byte_size: int = 0
    rows: int = 0
    manifests: int = 0
    collected: int = 0
    """Objects that the coordinator knew and nothing needed."""
    orphans: int = 0
    """Objects that only a listing found."""
    findings: tuple[str, ...] = ()
    """What must not be."""
    segments: int = 0
    """Finished segments of remote logs, which were read as a whole."""
    segment_bytes: int = 0

    def line(self) -> str:
        """For people."""
        return (
            f"diskless: {self.objects:,} objects of {self.byte_size:,} bytes, {self.rows:,} rows, "
            f"{self.manifests:,} manifests agree; {self.collected:,} objects and {self.orphans:,} "
            f"orphans collected; {self.segments:,} remote segments of {self.segment_bytes:,} "
            f"bytes are whole: {len(self.findings)} findings"
        )


class DisklessStorage:
    """Objects in their place; the coordinator in SQLite, or where the metadata is."""

    def __init__(
        self, folder: Path, store: SqliteFile | PostgresDatabase, objects: FolderObjects | S3Objects
    ) -> None:
        self.objects = objects
        self._file = folder / COORDINATOR
        self._is_file = isinstance(store, SqliteFile)
        self.coordinator_url = (
            f"sqlite://{self._file}" if isinstance(store, SqliteFile) else store.new_database()
        )
        self._turn = Turn()

    @property
    def settings(self) -> dict[str, str]:
        """What the nodes are told."""
        return {
            "diskless.storage.system.enable": "true",
            "remote.log.storage.system.enable": "true",
            "diskless.storage.url": self.objects.url,
            "diskless.coordinator.url": self.coordinator_url,
        }

    @contextlib.contextmanager
    def hold(self) -> Iterator[str]:
        """Nobody gets an answer of the coordinator."""
        with self._turn, self._locked() if self._is_file else self._tables_locked():
            yield "hold the coordinator"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(f"{self._file}.turn") as turn:
            if not wait_at_most(LOCK_SECONDS, lambda: _is_taken(turn.fileno())):
                raise Nothing("a paused broker has its turn at the coordinator")
            yield

    @contextlib.contextmanager
    def _tables_locked(self) -> Iterator[None]:
        with psycopg.connect(self.coordinator_url) as connection:
            connection.execute(f"LOCK TABLE {SCHEMA}.logs IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()

    # What only time would do.

    def outlive_leases(self, broker_id: int) -> int:
        """The leases of all objects that a broker has prepared are over, and those objects are
        collected; how many. The broker stands still meanwhile."""
        with self._turn:
            lapsed = self._lapse("AND broker_id = ", broker_id)
            try:
                return asyncio.run(self._collect_lapsed(lapsed))
            except StorageFault as fault:
                raise Nothing(str(fault)) from None

    def _lapse(self, chosen: str = "", *values: int) -> list[int]:
        """End leases now. Which objects had one."""
        which = f"WHERE state = 0 {chosen}"
        if self._is_file:
            with self._locked(), contextlib.closing(sqlite3.connect(self._file)) as on, on:
                mark = "?" if values else ""
                rows = on.execute(
                    f"UPDATE wal_objects SET expires_ms = 0 {which}{mark} RETURNING object_id",
                    values,
                ).fetchall()
        else:
            with psycopg.connect(self.coordinator_url) as connection:
                mark = "%s" if values else ""
                rows = connection.execute(
                    f"UPDATE {SCHEMA}.wal_objects SET expires_ms = 0 WHERE object_id IN "
                    f"(SELECT object_id FROM {SCHEMA}.wal_objects {which}{mark} "
                    "FOR UPDATE SKIP LOCKED) RETURNING object_id".encode(),
                    values,
                ).fetchall()
        return [row[0] for row in rows]

    async def _collect_lapsed(self, lapsed: Sequence[int]) -> int:
        async with self._opened() as (store, coordinator, _):
            await coordinator.mark_expired(len(lapsed) + 1000)
            waiting = [
                (number, key)
                for number, key in await coordinator.to_delete(0, 100_000)
                if number in set(lapsed)
            ]
            await store.delete([key for _, key in waiting])
            await coordinator.deleted([number for number, _ in waiting])
        return len(waiting)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[ObjectStore, Coordinator, str]]:
        async with contextlib.AsyncExitStack() as stack:
            store = await open_objects(self.objects.url)
            stack.push_async_callback(store.close)
            cluster_id = await owner_of(store)
            coordinator = await open_coordinator(self.coordinator_url, cluster_id)
            stack.push_async_callback(coordinator.close)
            yield store, coordinator, cluster_id

    # The end.

    def settle(self) -> Settled:
        """Collect garbage until there is none, then verify; all nodes are stopped."""
        self._lapse()
        return asyncio.run(self._settled())

    async def _settled(self) -> Settled:
        async with self._opened() as (store, coordinator, cluster_id):
            rounds = GarbageRounds(AT_ONCE)
            collector = Collector(coordinator, store, cluster_id, rounds)
            while await collector.collect():
                pass
            await collector.sweep()
            held = await read_store(store)
            found = await verify_store(store, coordinator, held, is_whole=True)
            remote = await verify_remote(store, coordinator, cluster_id, is_whole=True)
        wrong = tuple(
            f"{each.kind.value}: {each.place}: {each.detail}"
            for each in (*found.findings, *remote.findings)
            if each.kind.is_damage or each.kind in LEFT_BEHIND
        )
        collected = rounds.deleted_objects
        return Settled(*found[1:3], found.rows, found.manifests, collected,
                       rounds.deleted_orphans, wrong, remote.segments,
                       remote.byte_size)  # fmt: skip


def _is_taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
