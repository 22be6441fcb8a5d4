"""What a keeper does: it commits offsets that expire soon, and asks for them; and where logs begin.

What: some groups without members, each on its own task: a commit with a retention of seconds (the
field `retention_time_ms` of OffsetCommit, versions 2 to 4), a pause, and the question what is
committed. Some commit again at about the moment when the last offset expires: a commit may be under
way while the broker looks for stale ones. Others commit for good, to topics that are deleted.
Why our own client: no other one sends that field. Not here: what is wrong (`check_kept.py`).
"""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections.abc import Callable
from random import Random

from anabranch.client.cluster import Cluster, check
from anabranch.client.fetch import list_offsets
from anabranch.client.groups import committed_offsets
from anabranch.core.errors import ApiError
from anabranch.core.types import EARLIEST
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from chaos import secure
from chaos.history import Place, Writer

COMMIT_VERSION = 4
"""The last one that has a retention."""
GROUPS = 16
RETENTIONS_MS = (1_500, 3_000, 6_000)
FOR_GOOD = -1
DEADLINE_SECONDS = 10.0
ANSWER_SECONDS = 15.0
START_SECONDS = 2.0
LATE_SECONDS = 1.2
"""How long after an offset's time the next one is committed at the latest: brokers look each
second."""
AGAIN_SECONDS = 0.5
FAULTS = (ApiError, OSError)


def now_us() -> int:
    """The clock of histories."""
    return time.monotonic_ns() // 1000


def keep(arguments: Namespace, writer: Writer, stopping: Callable[[], bool]) -> int:
    """Keep groups until told to end."""
    asyncio.run(Keeper(arguments, writer, stopping).run())
    return 0


class Keeper:
    """See the module."""

    def __init__(self, arguments: Namespace, writer: Writer, stopping: Callable[[], bool]) -> None:
        self._writer, self._stopping = writer, stopping
        self._bootstrap: str = arguments.bootstrap
        self._topics: list[str] = arguments.topics.split(",")
        self._for_good: list[str] = [each for each in arguments.group.split(",") if each]
        self._name: str = arguments.name
        self._random = Random(f"{arguments.seed}:{arguments.name}")
        self._offset = 0

    async def run(self) -> None:
        """All groups, and the logs' starts."""
        tasks = [self._starts(topic) for topic in self._topics]
        for number in range(GROUPS):
            topic = self._for_good[number % len(self._for_good)] if number % 4 == 0 else "plain"
            ms = FOR_GOOD if number % 4 == 0 else self._random.choice(RETENTIONS_MS)
            tasks.append(self._group(f"{self._name}-{number}", Place(topic, 0), ms))
        await asyncio.gather(*tasks)

    async def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping() and time.monotonic() < until:  # noqa: ASYNC110 - a signal sets it
            await asyncio.sleep(min(0.1, max(0.0, until - time.monotonic())))

    # Offsets that expire.

    async def _group(self, group: str, place: Place, retention_ms: int) -> None:
        while not self._stopping():
            try:
                async with Cluster(
                    self._bootstrap, deadline_seconds=DEADLINE_SECONDS, security=secure.own()
                ) as cluster:
                    await self._turns(cluster, group, place, retention_ms)
            except FAULTS as fault:
                self._writer.line("note", what=f"keeper {type(fault).__name__}", count=1)
                await self._rest(AGAIN_SECONDS)

    async def _turns(self, cluster: Cluster, group: str, place: Place, retention_ms: int) -> None:
        while not self._stopping():
            await self._commit(cluster, group, place, retention_ms)
            life_seconds = max(retention_ms, 2_000) / 1000
            await self._rest(self._random.uniform(0, life_seconds / 2))
            await self._recall(cluster, group, place)
            if self._random.random() < 0.3:
                await self._rest(life_seconds * 2)
                await self._recall(cluster, group, place)
            else:
                await self._rest(life_seconds / 2 + self._random.uniform(0, LATE_SECONDS))

    async def _commit(self, cluster: Cluster, group: str, place: Place, ms: int) -> None:
        self._offset += 1
        offset, asked, ok = self._offset, now_us(), False
        part = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset
        )
        topic = OffsetCommitRequestTopic(name=place.topic, partitions=[part])
        request = OffsetCommitRequest(group_id=group, retention_time_ms=ms, topics=[topic])
        try:
            connection = await cluster.connection_to(await coordinator(cluster, group))
            answer = await connection.send(request, COMMIT_VERSION, timeout_seconds=ANSWER_SECONDS)
            check(answer.topics[0].partitions[0].error_code)
            ok = True
        finally:
            self._writer.line(
                "kept", group=group, at=place.text, offset=offset, asked=asked,
                retention_ms=ms, ok=ok,
            )  # fmt: skip
            self._writer.flush()

    async def _recall(self, cluster: Cluster, group: str, place: Place) -> None:
        asked = now_us()
        found = await committed_offsets(cluster, group)
        offset = found.get((place.topic, place.partition), -1)
        self._writer.line("recalled", group=group, at=place.text, offset=offset, asked=asked)

    # Logs that retention shortens.

    async def _starts(self, topic: str) -> None:
        while not self._stopping():
            try:
                async with Cluster(
                    self._bootstrap, deadline_seconds=DEADLINE_SECONDS, security=secure.own()
                ) as cluster:
                    while not self._stopping():
                        for number, start in (await list_offsets(cluster, topic, EARLIEST)).items():
                            self._writer.line("start", at=Place(topic, number).text, start=start)
                        await self._rest(START_SECONDS)
            except FAULTS as fault:
                self._writer.line("note", what=f"keeper {type(fault).__name__}", count=1)
                await self._rest(AGAIN_SECONDS)


async def coordinator(cluster: Cluster, group: str) -> int:
    """The broker that keeps a group's offsets now. Raises ApiError while there is none."""
    answer = await cluster.send(FindCoordinatorRequest(coordinator_keys=[group]))
    found = answer.coordinators[0]
    check(found.error_code, found.error_message)
    if found.node_id not in cluster.brokers:
        await cluster.metadata([])
    return int(found.node_id)
