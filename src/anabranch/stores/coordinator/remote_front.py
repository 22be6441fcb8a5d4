"""The facts of remote segments for the loop: `RemoteFacts` over an open coordinator.

What: each call becomes one of `RemoteTables`, in a lane in which it holds up no commit where an
engine has several connections. Not here: SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.stores.coordinator.front import Front, Lane

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey
    from anabranch.core.remote.facts import Facts, HeldRemoteLog
    from anabranch.core.remote.segments import RemoteSegment, SegmentId
    from anabranch.core.types import TopicId


class RemoteFront:
    """`RemoteFacts`, in the database of a coordinator."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def lead(self, key: LogKey, topic: str, leader_epoch: int) -> Facts:
        """See `RemoteFacts`, here and below."""
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.remote.lead(key, topic, leader_epoch)
        )

    async def look(self, key: LogKey) -> Facts | None:
        """What is known, for a reader."""
        return await self._front.call(Lane.READ, lambda on: on.remote.look(key))

    async def start(self, segment: RemoteSegment) -> None:
        """A try begins."""
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.start(segment))

    async def stands(self, segment: RemoteSegment) -> bool:
        """Whether a try may go on."""
        return await self._front.call(Lane.READ, lambda on: on.remote.stands(segment))

    async def finish(self, segment: RemoteSegment) -> None:
        """A try becomes FINISHED."""
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.finish(segment))

    async def begin_removal(
        self,
        key: LogKey,
        leader_epoch: int,
        log_start: int,
        finished: Sequence[SegmentId],
        given_up: Sequence[SegmentId],
    ) -> None:
        """Record a log start, and what is removed."""
        await self._front.call(
            Lane.UPKEEP,
            lambda on: on.remote.begin_removal(key, leader_epoch, log_start, finished, given_up),
        )

    async def forget(self, segment_ids: Sequence[SegmentId]) -> None:
        """Removals are over."""
        await self._front.call(Lane.UPKEEP, lambda on: on.remote.forget(segment_ids))

    async def topics(self, after: TopicId, limit: int) -> list[TopicId]:
        """Topics that have a remote log, by id."""
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.topics(after, limit))

    async def orphans(self, limit: int) -> list[RemoteSegment]:
        """Removals of deleted topics."""
        return await self._front.call(Lane.UPKEEP, lambda on: on.remote.orphans(limit))

    async def load(self, logs: Sequence[HeldRemoteLog]) -> None:
        """Take the facts of a coordinator that was lost."""
        await self._front.call(Lane.LOAD, lambda on: on.remote.load(logs))
