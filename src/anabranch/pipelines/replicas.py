"""Reading one replica of a partition from its own broker, as any consumer may (KIP-392).

Rule kept: nothing is asked of other brokers but where the log begins and ends, and whether
retention removes records; a follower that does not give out the last offsets yet is waited for,
then told as behind; one whose log begins later than the leader's lacks offsets, unless retention
may have removed them. Records of aborted transactions come along; a part says which they are, where
only committed ones are to be read.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from anabranch.client.admin import ResourceKind, describe_configs
from anabranch.client.cluster import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import Fetched, fetch, list_offsets, whole_batches
from anabranch.client.ranges import PART_BYTES, Part
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST
from anabranch.pipelines.comparison import BEHIND, EXPIRED, MISSING, UNREACHABLE, ReplicaEnds

WAIT_MS = 500
PATIENCE_SECONDS = 15.0
"""How long a follower may be behind, or a broker away: a restart and a fetch take less."""


class Replica(NamedTuple):
    """One replica of a partition, and the offset below which it is read."""

    topic: str
    partition: int
    broker_id: int
    until: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


class ReplicaReader:
    """Reads whole batches of one replica. See comparison.Reader. With `committed_only` nothing is
    read behind the start of an open transaction."""

    def __init__(
        self, cluster: Cluster, replica: Replica, *, patience_seconds: float = PATIENCE_SECONDS,
        committed_only: bool = False,
    ) -> None:  # fmt: skip
        self.broker_id = replica.broker_id
        self._cluster = cluster
        self._replica = replica
        self._patience_seconds = patience_seconds
        self._isolation_level = READ_COMMITTED if committed_only else 0
        self._leader_end: int | None = None
        """The high watermark, once asked for: the replica is to know it soon after."""

    async def read(self, offset: int) -> bytes:
        """Whole batches from the one that holds `offset`; empty at `until`. Raises ReplicaEnds."""
        part = await self.part(offset)
        return b"" if part is None else bytes(part.records)

    async def part(self, offset: int) -> Part | None:
        """The same, with the aborted transactions among them; None at `until`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while offset < self._replica.until:
            try:
                answer = await self._fetch(offset)
                size, next_offset = whole_batches(answer.records)
                if size:
                    return Part(memoryview(answer.records)[:size], next_offset, answer.aborted)
                end = self._end(offset, answer)
            except ConnectionLost as fault:
                end = ReplicaEnds(UNREACHABLE, f"{self._replica} cannot be read: {fault}")
            except ApiError as fault:
                end = await self._refused(offset, fault)
            if end.kind in (MISSING, EXPIRED) or loop.time() > until_s:
                raise end
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        return None

    async def _fetch(self, offset: int) -> Fetched:
        topic, partition, broker_id, _ = self._replica
        answers = await fetch(
            self._cluster, topic, {partition: offset}, leaders={partition: broker_id},
            max_wait_ms=WAIT_MS, max_bytes=PART_BYTES, partition_max_bytes=PART_BYTES,
            isolation_level=self._isolation_level,
        )  # fmt: skip
        return answers[0]

    def _end(self, offset: int, answer: Fetched) -> ReplicaEnds:
        """Why an answer without a batch was given."""
        end = answer.last_stable_offset if self._isolation_level else answer.high_watermark
        if len(answer.records):
            why = f"what {self._replica} sends for offset {offset} is no whole batch"
            return ReplicaEnds(MISSING, why)
        if end >= self._replica.until:
            why = f"{self._replica} has nothing at offset {offset}, and goes on to {end}"
            return ReplicaEnds(MISSING, why)
        why = f"{self._replica} gives out offsets below {end} only; {self._replica.until} was due"
        return ReplicaEnds(BEHIND, why)

    async def _refused(self, offset: int, fault: ApiError) -> ReplicaEnds:
        """Why a fetch was refused. A replica that is being filled will have what the leader has."""
        behind = ReplicaEnds(BEHIND, f"{self._replica} does not give out offset {offset} yet")
        if fault.code == ErrorCode.OFFSET_NOT_AVAILABLE:
            return behind
        if fault.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return ReplicaEnds(UNREACHABLE, f"{self._replica} cannot be read: {fault.message}")
        first = await self._of_leader(EARLIEST)
        if first > offset:
            why = f"{self._replica}: the log begins at offset {first} now, {offset} has expired"
            return ReplicaEnds(EXPIRED, why)
        start = await self._start()
        if start <= offset:
            return behind
        begins = f"its log begins at {start}"
        if await self._expires():
            why = f"{self._replica}: {begins}, and retention may have removed what was before"
            return ReplicaEnds(EXPIRED, why)
        return ReplicaEnds(
            MISSING, f"{self._replica} lacks offsets {offset} to {start - 1}: {begins}"
        )

    async def _expires(self) -> bool:
        """Whether retention removes records of this topic: each broker applies it at its own time,
        so that a log may begin later than its leader's for some minutes."""
        configs = await describe_configs(self._cluster, ResourceKind.TOPIC, self._replica.topic)
        settings = {each.name: each.value or "" for each in configs}
        return "delete" in settings.get("cleanup.policy", "delete") and any(
            not settings.get(name, "").startswith("-")
            for name in ("retention.ms", "retention.bytes")
        )

    async def _start(self) -> int:
        """Where this log begins; -1 while it does not tell. A refusal does not say it, nor whether
        an offset lies before the log or behind it; a fetch at the end does, which a replica that
        is behind refuses, too."""
        if self._leader_end is None:
            self._leader_end = await self._of_leader(LATEST)
        try:
            return (await self._fetch(self._leader_end)).log_start_offset
        except (ApiError, ConnectionLost):
            return -1

    async def _of_leader(self, time: int) -> int:
        topic, partition, _, _ = self._replica
        return (await list_offsets(self._cluster, topic, time, [partition]))[partition]
