"""A coordinator's calls for the loop, made of calls that wait: what all engines share.

What: each call of `Coordinator` becomes one of `Tables`, which is synchronous, in a lane of its
kind, so that a slow step of retention holds up no commit where an engine has several connections.
Not here: `changes`, which each engine hears in its own way; transactions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from anabranch.core.diskless.contents import Contents
from anabranch.core.diskless.coordinator import Coordinator, OlderCopy
from anabranch.core.diskless.keys import object_id
from anabranch.core.diskless.last_commits import KnownCommits
from anabranch.core.diskless.rows import (
    Change,
    Commit,
    CommitState,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Prepared,
    Run,
    Wanted,
)
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.compaction_tables import CompactionTables
from anabranch.stores.coordinator.remote_tables import RemoteTables
from anabranch.stores.coordinator.seal_tables import SealTables
from anabranch.stores.coordinator.tiering_tables import TieringTables

ResultT = TypeVar("ResultT")
LOAD_TIMEOUT_S = 3600.0
"""Millions of rows take minutes."""
Step = tuple[Run | None, int | None]
"""What was found among some runs, from an offset on, and where the next ones begin, if any."""
MOST_RUNS_WALKED = 10_000
"""In one step through a partition: a few milliseconds."""


def wall_clock_ms() -> int:
    """Milliseconds since 1970, by this machine."""
    return time.time_ns() // 1_000_000


class Lane(Enum):
    """What a call is about."""

    WRITE = "write"
    READ = "read"
    UPKEEP = "upkeep"
    LOAD = "load"
    """All rows at once, while no broker runs."""


class Tables(Protocol):
    """The calls of `Coordinator`, each a transaction that waits until it is done."""

    @property
    def remote(self) -> RemoteTables: ...
    @property
    def tiering(self) -> TieringTables: ...
    @property
    def compaction(self) -> CompactionTables: ...
    @property
    def seals(self) -> SealTables: ...
    def take_control(self, controller_epoch: int) -> None: ...
    def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]: ...
    def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None: ...
    def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None: ...
    def register(self, broker_id: int, broker_epoch: int) -> None: ...
    def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]: ...
    def commit(self, commit: Commit) -> Committed: ...
    def outcome(self, object_key: str) -> Committed: ...
    def refuse(self, object_ids: Sequence[int]) -> None: ...
    def states(self, keys: Sequence[LogKey]) -> list[LogState | None]: ...
    def find(self, wanted: Sequence[Wanted]) -> list[Found]: ...
    def some_by_time(self, key: LogKey, timestamp: int, first: int, most_runs: int) -> Step: ...
    def some_newest(self, key: LogKey, first: int, most_runs: int) -> Step: ...
    def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]: ...
    def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]: ...
    def mark_expired(self, limit: int) -> int: ...
    def forget_producers(self, idle_ms: int, limit: int) -> int: ...
    def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]: ...
    def count_to_delete(self, grace_ms: int, limit: int) -> int: ...
    def deleted(self, object_ids: Sequence[int]) -> None: ...
    def unknown(self, object_keys: Sequence[str]) -> list[str]: ...
    def uncommitted(self, object_ids: Sequence[int]) -> list[int]: ...
    def last_id(self) -> int: ...
    def store(self, store_id: str) -> str: ...
    def mark(self) -> str: ...
    def load(self, contents: Contents) -> None: ...


class Front(Coordinator, ABC):
    """A `Coordinator` over `Tables`."""

    def __init__(self) -> None:
        self.known = KnownCommits()
        """What must be in the database when a new connection to it is made."""
        self._wrong: StorageFault | None = None

    async def call(self, lane: Lane, call: Callable[[Tables], ResultT]) -> ResultT:
        """Make a call where it may wait; none after one that found an older copy."""
        self.check_usable()
        try:
            return await self.make(lane, call)
        except OlderCopy as fault:
            self.refuse_all(fault)
            raise

    @abstractmethod
    async def make(self, lane: Lane, call: Callable[[Tables], ResultT]) -> ResultT:
        """Make a call."""

    @abstractmethod
    def changes(self) -> AsyncIterator[list[Change]]:
        pass

    @abstractmethod
    async def close(self) -> None:
        pass

    def abandon(self) -> None:
        """Close without a turn of the loop: see `Node.abandon`."""
        return

    def refuse_all(self, fault: StorageFault) -> None:
        """Make no call from now on: each raises this. The coordinator must not be used."""
        self._wrong = fault

    def check_usable(self) -> None:
        """Raises what `refuse_all` was told."""
        if self._wrong is not None:
            raise self._wrong

    async def take_control(self, controller_epoch: int) -> None:
        await self.call(Lane.UPKEEP, lambda on: on.take_control(controller_epoch))

    async def topics(self, after: TopicId, limit: int) -> list[tuple[TopicId, int]]:
        return await self.call(Lane.UPKEEP, lambda on: on.topics(after, limit))

    async def create_logs(self, controller_epoch: int, new: Sequence[NewLogs]) -> None:
        await self.call(Lane.UPKEEP, lambda on: on.create_logs(controller_epoch, new))

    async def delete_topics(self, controller_epoch: int, topic_ids: Sequence[TopicId]) -> None:
        await self.call(Lane.UPKEEP, lambda on: on.delete_topics(controller_epoch, topic_ids))

    async def register(self, broker_id: int, broker_epoch: int) -> None:
        await self.call(Lane.WRITE, lambda on: on.register(broker_id, broker_epoch))

    async def prepare(
        self, broker_id: int, broker_epoch: int, count: int, lease_ms: int
    ) -> list[Prepared]:
        return await self.call(
            Lane.WRITE, lambda on: on.prepare(broker_id, broker_epoch, count, lease_ms)
        )

    async def commit(self, commit: Commit) -> Committed:
        number = commit.object_id
        return await self.call(Lane.WRITE, lambda on: self._noted(number, on.commit(commit)))

    async def outcome(self, object_key: str) -> Committed:
        number = object_id(object_key)
        return await self.call(Lane.WRITE, lambda on: self._noted(number, on.outcome(object_key)))

    def _noted(self, number: int, answer: Committed) -> Committed:
        """In the call's thread, so that the next connection finds it noted."""
        if answer.state is CommitState.COMMITTED:
            self.known.committed(number)
        return answer

    async def refuse(self, object_ids: Sequence[int]) -> None:
        await self.call(Lane.WRITE, lambda on: on.refuse(object_ids))

    async def states(self, keys: Sequence[LogKey]) -> list[LogState | None]:
        return await self.call(Lane.READ, lambda on: on.states(keys))

    async def find(self, wanted: Sequence[Wanted]) -> list[Found]:
        return await self.call(Lane.READ, lambda on: on.find(wanted))

    async def by_time(self, key: LogKey, timestamp: int, first: int = 0) -> Run | None:
        """In steps, between which others have their turn."""
        after: int | None = first
        while after is not None:
            found, after = await self._by_time(key, timestamp, after)
            if found is not None:
                return found
        return None

    async def newest(self, key: LogKey) -> Run | None:
        """In steps too."""
        newest, after = await self._newest(key, 0)
        while after is not None:
            found, after = await self._newest(key, after)
            if found is not None and (newest is None or found.max_timestamp > newest.max_timestamp):
                newest = found
        return newest

    async def _by_time(self, key: LogKey, timestamp: int, after: int) -> Step:
        return await self.call(
            Lane.READ, lambda on: on.some_by_time(key, timestamp, after, MOST_RUNS_WALKED)
        )

    async def _newest(self, key: LogKey, after: int) -> Step:
        return await self.call(Lane.READ, lambda on: on.some_newest(key, after, MOST_RUNS_WALKED))

    async def delete_before(self, wanted: Iterable[tuple[LogKey, int]]) -> list[LogState | None]:
        return await self.call(Lane.UPKEEP, lambda on: on.delete_before(wanted))

    async def expire(
        self, key: LogKey, *, older_than_ms: int, most_bytes: int, most_runs: int
    ) -> tuple[LogState | None, int]:
        return await self.call(
            Lane.UPKEEP,
            lambda on: on.expire(
                key, older_than_ms=older_than_ms, most_bytes=most_bytes, most_runs=most_runs
            ),
        )

    async def mark_expired(self, limit: int) -> int:
        return await self.call(Lane.UPKEEP, lambda on: on.mark_expired(limit))

    async def forget_producers(self, idle_ms: int, limit: int) -> int:
        return await self.call(Lane.UPKEEP, lambda on: on.forget_producers(idle_ms, limit))

    async def to_delete(self, grace_ms: int, limit: int) -> list[tuple[int, str]]:
        return await self.call(Lane.UPKEEP, lambda on: on.to_delete(grace_ms, limit))

    async def count_to_delete(self, grace_ms: int, limit: int) -> int:
        return await self.call(Lane.UPKEEP, lambda on: on.count_to_delete(grace_ms, limit))

    async def deleted(self, object_ids: Sequence[int]) -> None:
        await self.call(Lane.UPKEEP, lambda on: on.deleted(object_ids))

    async def unknown(self, object_keys: Sequence[str]) -> list[str]:
        return await self.call(Lane.UPKEEP, lambda on: on.unknown(object_keys))

    async def uncommitted(self, object_ids: Sequence[int]) -> list[int]:
        return await self.call(Lane.READ, lambda on: on.uncommitted(object_ids))

    async def last_id(self) -> int:
        return await self.call(Lane.READ, lambda on: on.last_id())

    async def store(self, store_id: str) -> str:
        return await self.call(Lane.UPKEEP, lambda on: on.store(store_id))

    async def mark(self) -> str:
        return await self.call(Lane.READ, lambda on: on.mark())

    async def load(self, contents: Contents) -> None:
        await self.call(Lane.LOAD, lambda on: on.load(contents))
