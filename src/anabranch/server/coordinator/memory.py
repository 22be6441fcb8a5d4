"""The coordinator in memory with asynchronous calls: for tests, and for parts built before SQL is.

What: a thin front of `MemoryCoordinator`; several fronts may share one, as brokers share a
database. Not here: durability; no URL names this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.memory_coordinator import MemoryCoordinator
from anabranch.core.diskless.rows import (
    Change,
    Commit,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Prepared,
    Run,
    Wanted,
)
from anabranch.core.types import TopicId


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class AsyncMemoryCoordinator:
    """A `Coordinator` over shared tables; each call gives way to the loop once."""

    def __init__(self, tables: MemoryCoordinator | None = None, cluster_id: str = "memory") -> None:
        self.tables = tables or MemoryCoordinator(cluster_id, wall_clock_ms)
        self._closed = False

    async def _turn(self) -> MemoryCoordinator:
        await asyncio.sleep(0)
        if self._closed:
            raise CoordinatorAway("the coordinator in memory is closed")
        return self.tables

    async def take_control(self, controller_epoch: int) -> None:
        """See `Coordinator`, here and below."""
        (await self._turn()).take_control(controller_epoch)

    async def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        """Topics that have rows."""
        return (await self._turn()).topics(after, limit)

    async def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        """Make rows."""
        (await self._turn()).create_logs(controller_epoch, new)

    async def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        """Delete rows."""
        (await self._turn()).delete_topics(controller_epoch, topic_ids)

    async def register(self, broker_id: int, broker_epoch: int) -> None:
        """A broker's epoch."""
        (await self._turn()).register(broker_id, broker_epoch)

    async def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        """Ids and keys."""
        return (await self._turn()).prepare(broker_id, broker_epoch, count, lease_ms)

    async def commit(self, commit: Commit) -> Committed:
        """Give offsets."""
        return (await self._turn()).commit(commit)

    async def outcome(self, object_key: str) -> Committed:
        """What became of an object."""
        return (await self._turn()).outcome(object_key)

    async def refuse(self, object_ids: Sequence[int]) -> None:
        """Uploads that failed."""
        (await self._turn()).refuse(object_ids)

    async def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        """Where partitions stand."""
        return (await self._turn()).states(keys)

    async def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        """Runs to be read."""
        return (await self._turn()).find(wanted)

    async def by_time(self, key: LogKey, timestamp: int) -> Run | None:
        """The first run that is not older."""
        return (await self._turn()).by_time(key, timestamp)

    async def newest(self, key: LogKey) -> Run | None:
        """The run of the greatest timestamp."""
        return (await self._turn()).newest(key)

    async def changes(self) -> AsyncIterator[list[Change]]:
        """Changes from the first, empty, list on."""
        heard: asyncio.Queue[list[Change]] = asyncio.Queue()
        unlisten = (await self._turn()).listen(heard.put_nowait)
        try:
            yield []
            while True:
                yield await heard.get()
        finally:
            unlisten()

    async def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        """Raise starts."""
        return (await self._turn()).delete_before(wanted)

    async def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        """Retention."""
        tables = await self._turn()
        return tables.expire(
            key, older_than_ms=older_than_ms, most_bytes=most_bytes, most_runs=most_runs
        )

    async def mark_expired(self, limit: int) -> int:
        """A step of garbage."""
        return (await self._turn()).mark_expired(limit)

    async def forget_producers(self, idle_ms: int, limit: int) -> int:
        """A step of producers."""
        return (await self._turn()).forget_producers(idle_ms, limit)

    async def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        """Objects to delete."""
        return (await self._turn()).to_delete(grace_ms, limit)

    async def deleted(self, object_ids: Sequence[int]) -> None:
        """Objects that are gone."""
        (await self._turn()).deleted(object_ids)

    async def unknown(self, object_keys: Sequence[str]) -> list[str]:
        """Keys that are not known."""
        return (await self._turn()).unknown(object_keys)

    async def close(self) -> None:
        """Every later call raises."""
        self._closed = True
