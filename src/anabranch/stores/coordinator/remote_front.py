"""The facts of remote segments for the loop: `RemoteFacts` over an open coordinator.

What: each call becomes one of `RemoteTables`, in a lane in which it holds up no commit where an
engine has several connections. Not here: SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.core.remote.facts import RemoteFacts
from anabranch.stores.coordinator.front import Front, Lane
from anabranch.stores.coordinator.remote_reads import RemoteFactReads

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey
    from anabranch.core.remote.facts import Facts, HeldRemoteLog
    from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
    from anabranch.core.types import TopicId


class RemoteFront(RemoteFacts):
    """`RemoteFacts`, in the database of a coordinator."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._reads = RemoteFactReads()

    async def lead(
        self, key: LogKey, topic: str, leader_epoch: int, epochs: Sequence[EpochStart] = ()
    ) -> Facts:
        return await self._front.call(
            Lane.UPKEEP, lambda on: self._reads.lead(on.remote, key, topic, leader_epoch, epochs)
        )

    async def look(self, key: LogKey) -> Facts | None:
        return await self._front.call(Lane.READ, lambda on: self._reads.look(on.remote, key))

    async def logs(self, after: LogKey, limit: int) -> list[HeldRemoteLog]:
        """Partitions after one that have facts, by topic id; for tools."""
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.logs(after, limit))

    async def start(self, segment: RemoteSegment) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.start(segment))

    async def stands(self, segment: RemoteSegment) -> bool:
        return await self._front.call(Lane.READ, lambda on: on.remote.stands(segment))

    async def finish(self, segment: RemoteSegment) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.finish(segment))

    async def begin_removal(
        self,
        key: LogKey,
        leader_epoch: int,
        log_start: int,
        finished: Sequence[SegmentId],
        given_up: Sequence[SegmentId],
    ) -> None:
        await self._front.call(
            Lane.UPKEEP,
            lambda on: on.remote.begin_removal(key, leader_epoch, log_start, finished, given_up),
        )

    async def forget(self, segment_ids: Sequence[SegmentId]) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.forget(segment_ids))

    async def topics(self, after: TopicId, limit: int) -> list[TopicId]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.topics(after, limit))

    async def copied_topics(self) -> list[TopicId]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.copied_topics())

    async def known(self, segment_ids: Sequence[SegmentId]) -> set[SegmentId]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.known(segment_ids))

    async def orphans(self, limit: int) -> list[RemoteSegment]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.orphans(limit))

    async def load(self, logs: Sequence[HeldRemoteLog]) -> None:
        await self._front.call(Lane.LOAD, lambda on: on.remote.load(logs))
