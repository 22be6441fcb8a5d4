"""What is seen of one partition of a cluster of processes, in the words of a rehearsal.

What: the partition's metadata, from the copies of the metadata log that the nodes keep on their
disks; how far each log is, asked of each broker; what the leader serves, asked as a client asks.
Why from disks: so the last state is there when no process is.

Rule kept: nothing is inferred from what was done to the processes but whether they run. Source:
ListOffsets as a debugging client (its end, on any replica), Fetch from any replica (KIP-392).
Not here: what is done (`actions.py`), when it has come to rest (`stage.py`).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.partitions import Illness, describe_topics
from anabranch.core.errors import ApiError, ProtocolError
from anabranch.core.metadata.batches import decode_batches
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.types import LATEST
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.metadata import MetadataRequest
from anabranch.sim.rehearsal.model import Rehearsal
from anabranch.sim.rehearsal.outcome import ALL, NOTHING, READS, State, watched
from anabranch.sim.rehearsal.transcript import SERVES
from anabranch.testing.rehearsal.machines import Machines

COPY = "__cluster_metadata-0"
DIAL_SECONDS = 2.0
ANSWER_SECONDS = 2.0
FETCH_BY_NAME = 12
LOOK_BYTES = 1 << 20
DEBUGGING = -2


class PartitionProbe:
    """Looks at the watched partition of a plan."""

    def __init__(self, plan: Rehearsal, machines: Machines) -> None:
        self.place = plan.watch
        topic = plan.topic(plan.watch[0])
        self.is_diskless = topic is not None and topic.is_diskless
        self.brokers = watched(plan)
        self.machines = machines
        self.image = MetadataImage.empty()
        self._read_to: dict[Path, int] = {}
        self._connections: dict[int, Connection] = {}

    @property
    def partition(self) -> PartitionImage | None:
        """The partition as the newest copy of the metadata has it."""
        return self.image.partition(*self.place)

    async def state(self) -> State | None:
        """What is seen now; None before the partition exists."""
        self.follow()
        partition = self.partition
        if partition is None:
            return None
        logs = await asyncio.gather(*(self._log_of(each) for each in self.brokers))
        return State(
            leader=partition.leader,
            isr=frozenset(partition.isr),
            elr=frozenset(partition.elr),
            logs=tuple(logs),
            serves=await self._served(partition.leader),
        )

    async def close(self) -> None:
        """End every connection."""
        for each in self._connections.values():
            await each.close()

    # Metadata, from the disks.

    def follow(self) -> None:
        """Read what was added to the copies since the last look."""
        for folder in self.machines.folders.values():
            for path in sorted((folder / COPY).glob("*.log")):
                self._read(path)

    def _read(self, path: Path) -> None:
        at = self._read_to.get(path, 0)
        with path.open("rb") as file:
            at = min(at, os.fstat(file.fileno()).st_size)  # a disk may have been replaced
            file.seek(at)
            fresh = file.read()
        try:
            for batch in decode_batches(fresh):
                at += batch.header.size_bytes
                if batch.header.base_offset == self.image.next_offset:
                    self._replay(batch)
        except ProtocolError:
            pass  # it is being written: the next look sees it whole
        self._read_to[path] = at

    def _replay(self, batch: Any) -> None:
        header = batch.header
        self.image, _ = replay_batch(
            self.image, batch.records, header.last_offset, header.leader_epoch
        )

    # Logs and service, over the wire.

    async def connection(self, broker: int) -> Connection:
        """A connection to a broker. Raises ConnectionLost."""
        known = self._connections.get(broker)
        if known is None or not known.is_open:
            host, port = self.machines.address(broker)
            known = await Connection.open(host, port, timeout_seconds=DIAL_SECONDS)
            self._connections[broker] = known
        return known

    async def dial(self, broker: int) -> Connection:
        """A connection of its own. Raises ConnectionLost."""
        host, port = self.machines.address(broker)
        return await Connection.open(host, port, timeout_seconds=DIAL_SECONDS)

    async def _log_of(self, broker: int) -> str:
        if broker in self.machines.frozen:
            return "frozen"
        if broker not in self.machines.up:
            return "down"
        if self.is_diskless:
            return await self._serves(broker)
        try:
            end, fetched = await self._end_of(broker), await self.fetched(broker)
        except (ConnectionLost, ApiError):
            return "-"
        part = fetched.responses[0].partitions[0] if fetched.responses else None
        if end < 0 or part is None or part.error_code:
            return "-"
        return f"{part.high_watermark}/{end}"

    async def _serves(self, broker: int) -> str:
        """Whether a broker answers clients, in the words of a diskless partition."""
        try:
            connection = await self.connection(broker)
            message = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            await connection.send(message, timeout_seconds=ANSWER_SECONDS)
        except ConnectionLost:
            return "-"
        return SERVES

    async def _end_of(self, broker: int) -> int:
        topic, index = self.place
        part = ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        message = ListOffsetsRequest(
            replica_id=DEBUGGING, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
        )
        connection = await self.connection(broker)
        answer = await connection.send(message, timeout_seconds=ANSWER_SECONDS)
        told = answer.topics[0].partitions[0]
        return -1 if told.error_code else int(told.offset)

    async def fetched(self, broker: int, offset: int = 0) -> Any:
        """What a broker answers to a consumer. Raises ConnectionLost."""
        topic, index = self.place
        part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=LOOK_BYTES)
        message = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=LOOK_BYTES,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )  # fmt: skip
        connection = await self.connection(broker)
        return await connection.send(message, FETCH_BY_NAME, timeout_seconds=ANSWER_SECONDS)

    async def _served(self, leader: int) -> str:
        """What the leader serves, by its own words."""
        if leader not in self.machines.up - self.machines.frozen:
            return NOTHING
        if self.is_diskless:
            serves = await self._serves(leader) == SERVES
            return (READS if self.machines.away else ALL) if serves else NOTHING
        topic, index = self.place
        host, port = self.machines.address(leader)
        try:
            fetched = await self.fetched(leader)
            if not fetched.responses or fetched.responses[0].partitions[0].error_code:
                return NOTHING
            async with Cluster(f"{host}:{port}", deadline_seconds=ANSWER_SECONDS) as cluster:
                described = (await describe_topics(cluster, [topic]))[0]
        except (ConnectionLost, ApiError):
            return NOTHING
        partition = described.partitions[index]
        if partition.leader != leader:
            return NOTHING
        ill = partition.illnesses(described.minimum)
        return READS if Illness.UNDER_MIN_ISR in ill else ALL
