"""Stores a broker's manifests: the shell of `core/diskless/manifests.py`.

What: the broker tells it what it has committed, and what moves; a task puts a manifest when one is
due, and again until the store has it; then it notes the last commit in a name of its own
(`last_commits.py`), and removes the note before. Rule kept: no serving call waits for it; a name
that another process took is told, and nothing replaced. Not here: what a manifest says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from anabranch.core.diskless.last_commits import note_key, notes_prefix
from anabranch.core.diskless.manifests import Frozen, ManifestLog
from anabranch.core.diskless.objects import ObjectStore, ObjectTaken
from anabranch.core.diskless.rows import Change, Commit, Committed
from anabranch.core.errors import StorageFault
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("diskless")
NOTE = b"anabranch: the name says which commit was the last one of its broker\n"
RETRY_S = 2.0
STOP_S = 5.0
"""How long a broker that stops waits for its last manifest; a restore lists what is missing."""


class Manifests:
    """One broker's manifests, in one registration. `clock`: milliseconds that never go back."""

    def __init__(self, store: ObjectStore, notes: ManifestLog, clock: Callable[[], int]) -> None:
        self._store, self._notes, self._clock = store, notes, clock
        self._noted = asyncio.Event()
        self.stored_ms: int | None = None
        """When the last one was stored."""
        self._noted_keys: set[str] | None = None
        """Notes of this broker in the store, once they are known."""
        self.lost_objects = 0
        """Objects of manifests whose names another process had taken."""

    def committed(self, commit: Commit, answer: Committed) -> None:
        """This broker has committed an object."""
        self._notes.committed(commit, answer, self._clock())
        self._noted.set()

    def heard(self, changes: Sequence[Change]) -> None:
        """Partitions moved, by whatever broker."""
        self._notes.heard(changes, self._clock())
        if self._notes.next_tick_ms is not None:
            self._noted.set()

    @property
    def given_up_objects(self) -> int:
        """Objects that no manifest names."""
        return self._notes.given_up_objects + self.lost_objects

    async def run(self) -> None:
        """Until cancelled: store what is due."""
        while True:
            due_ms = self._notes.next_tick_ms
            if due_ms is None and not self._notes.waiting_count:
                self._noted.clear()
                await self._noted.wait()
                continue
            wait_s = 0.0 if due_ms is None else (due_ms - self._clock()) / 1000
            if wait_s > 0 and not self._notes.waiting_count:
                await asyncio.sleep(min(wait_s, 1.0))  # a full one is due earlier
                continue
            if not await self._store_some():
                await asyncio.sleep(RETRY_S)

    async def _store_some(self) -> bool:
        try:
            return await self.store_due()
        except Exception as fault:  # without manifests no coordinator could be restored
            tell_unexpected(fault, "storing manifests")
            LOG.error("storing manifests failed", fault=repr(fault))
            return False

    async def stop(self) -> None:
        """Store what was noted, if the store answers soon; called after `run` was cancelled."""
        try:
            async with asyncio.timeout(STOP_S):
                await self.store_due(at_once=True)
        except TimeoutError:
            LOG.warning("the last manifest was not stored", waited_s=STOP_S)

    async def store_due(self, *, at_once: bool = False) -> bool:
        """Put what is due; whether the store took it."""
        while (frozen := self._notes.tick(self._clock(), at_once=at_once)) is not None:
            try:
                await self._put(frozen)
            except StorageFault as fault:
                LOG.warning("a manifest was not stored; the broker tries again", why=str(fault))
                return False
            self._notes.stored(frozen)
            self.stored_ms = self._clock()
            if frozen.last_object_key:
                await self._note(frozen.last_object_key)
        return True

    async def _note(self, object_key: str) -> None:
        """Note the last commit; one that fails is made good by the next one."""
        cluster_id, broker_id = self._notes.writer
        key = note_key(cluster_id, broker_id, object_key)
        try:
            if self._noted_keys is None:
                prefix = notes_prefix(cluster_id, broker_id)
                found = [each.key async for page in self._store.list(prefix) for each in page]
                self._noted_keys = set(found)
            with suppress(ObjectTaken):
                await self._store.put(key, [NOTE])
            self._noted_keys.add(key)
            older = sorted(self._noted_keys - {key})
            self._noted_keys.difference_update(await self._store.delete(older))
        except StorageFault as fault:
            LOG.warning("the last commit was not recorded; the next one will be", why=str(fault))

    async def _put(self, frozen: Frozen) -> None:
        try:
            await self._store.put(frozen.key, [frozen.content])
        except ObjectTaken:
            self.lost_objects += frozen.object_count
            LOG.error(
                "another process has stored a manifest of this broker; check that no two brokers "
                "run with the same id",
                manifest=frozen.key,
            )
