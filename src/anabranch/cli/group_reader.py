"""Reads topics for `anabranch consume --group` as one member of the group.

What: `Group` joins, commits and leaves for all topics; a `Member` reads one of them. Rules kept: a
group's offsets are committed only for records that were printed; when the assignment is void, all
readers stop before any of them begins in the next one. Source: KIP-62. Not here: the requests
(`client/membership`), reading (`record_reader`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.cli.cluster_command import printable, waiting_told
from anabranch.cli.record_reader import Reader

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.membership import Membership
    from anabranch.core.wire.records import Record

COMMIT_SECONDS = 5.0
"""How often a group's offsets are committed, as Kafka's consumers do by themselves."""


class Group:
    """What the readers of all topics share: the membership, and what was printed and committed."""

    def __init__(self, cluster: Cluster, group_id: str, membership: Membership) -> None:
        self._cluster, self._group_id, self._membership = cluster, group_id, membership
        self._members: dict[str, Member] = {}
        self._turn = asyncio.Lock()
        self._has_joined = self._has_more = False
        self._committed: dict[tuple[str, int], int] = {}
        self._committed_s = 0.0

    def read(self, reader: Reader, start: str) -> Member:
        """A member that reads one more topic; where nothing was committed, from `start`."""
        self._members[reader.topic] = member = Member(self, reader, start)
        self._membership.subscribe(reader.topic)
        self._has_more = True
        return member

    async def keep(self) -> None:
        """Stay in the group, or join it again; commit what was printed when that is due."""
        async with self._turn:
            if self._has_joined and (self._has_more or not await self._membership.stay()):
                for each in self._members.values():
                    await each.stop()
                await self._commit()
                self._has_joined = False
            if not self._has_joined:
                await self._join()
            elif time.monotonic() - self._committed_s >= COMMIT_SECONDS:
                await self._commit()

    def forget(self, topic: str) -> None:
        """The topic is another one now: what was committed of it does not count."""
        self._committed = {at: n for at, n in self._committed.items() if at[0] != topic}

    async def leave(self) -> None:
        """Commit and leave; what cannot be told is told by the session's end."""
        from anabranch.client.connection import ConnectionLost
        from anabranch.core.errors import ApiError

        with contextlib.suppress(ApiError, ConnectionLost):
            await self._commit()
            await self._membership.leave()

    async def _join(self) -> None:
        from anabranch.client.groups import committed_offsets

        self._has_more = False
        async with waiting_told(f"partitions from group {printable(self._group_id)}"):
            given = await self._membership.join()
            found = await committed_offsets(self._cluster, self._group_id)
        for topic, partitions in given.items():
            committed = {index: at for (name, index), at in found.items() if name == topic}
            await self._members[topic].take(partitions, committed)
        self._has_joined, self._committed_s = True, time.monotonic()
        places = [(topic, index) for topic, indexes in given.items() for index in indexes]
        self._committed = {each: found.get(each, -1) for each in places}

    async def _commit(self) -> None:
        self._committed_s = time.monotonic()
        news = {
            topic: changed
            for topic, each in self._members.items()
            if (changed := self._changed(topic, each.printed))
        }
        if news and self._has_joined:
            self._has_joined = await self._membership.commit(news)
            self._committed |= {
                (topic, index): at for topic, each in news.items() for index, at in each.items()
            }

    def _changed(self, topic: str, offsets: dict[int, int]) -> dict[int, int]:
        return {
            index: at for index, at in offsets.items() if self._committed.get((topic, index)) != at
        }


class Member:
    """Reads what the group gives of one topic."""

    def __init__(self, group: Group, reader: Reader, start: str) -> None:
        self._group, self._reader, self._start = group, reader, start
        self._read: asyncio.Task[list[tuple[int, Record]]] | None = None
        self._round = self._shown_round = 0
        self.printed: dict[int, int] = {}
        """The next offset of each partition after what was printed."""

    @property
    def topic(self) -> str:
        """What it reads."""
        return self._reader.topic

    @property
    def waiting(self) -> list[int]:
        """The partitions that cannot be read now."""
        return self._reader.waiting

    async def poll(self) -> list[tuple[int, Record]]:
        """What has come, nothing if the group gave other partitions meanwhile."""
        await self._group.keep()
        before, self._shown_round = self._reader.topic_id, self._round
        self._read = asyncio.ensure_future(self._reader.poll())
        try:
            await asyncio.wait({self._read})
        except asyncio.CancelledError:
            self._read.cancel()
            await asyncio.gather(self._read, return_exceptions=True)
            raise
        if self._read.cancelled():
            return []
        if self._reader.topic_id != before:
            self._group.forget(self.topic)
        return self._read.result()

    def shown(self, records: Sequence[tuple[int, Record]], count: int) -> None:
        """Only the first of the records that came last were printed."""
        if self._shown_round == self._round:
            self._reader.shown(records, count)
            self.printed = self._reader.positions

    async def stop(self) -> None:
        """Read no more of what the group gave before."""
        self._round += 1
        if self._read is not None:
            self._read.cancel()
            await asyncio.wait({self._read})

    async def take(self, partitions: Sequence[int], committed: dict[int, int]) -> None:
        """Read these partitions from now on."""
        await self._reader.take(partitions, committed, self._start)
        self.printed = self._reader.positions
