"""What clients of a rehearsal on processes send, once, as the file says.

The rule it keeps: each record is sent once and its answer written down, as the simulated producer
(`sim/rehearsal/producer.py`) does; nothing is tried again that would hide a refusal. Not here: the
operator's requests (`actions.py`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.client.connection import Connection, ConnectionLost
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.sim.rehearsal.answers import Place
from anabranch.sim.rehearsal.producer import (
    NOBODY_LEADS,
    REQUEST_TIMEOUT_MS,
    UNANSWERED,
    Sent,
)
from anabranch.testing.rehearsal.probe import ANSWER_SECONDS, PartitionProbe

PRODUCE_BY_NAME = 12


class RehearsalClients:
    """The clients. `log` holds what was sent, in order."""

    def __init__(self, looking: PartitionProbe) -> None:
        self.looking = looking
        self.machines = looking.machines
        self.place = looking.place
        self.log: list[Sent] = []
        self._count = 0
        self._ready: dict[int, list[Connection]] = {}
        """Connections that clients made to a broker before it froze: it answers no new one."""

    async def leader(self, place: Place) -> int:
        """Who leads, as the first broker that answers says."""
        topic, index = place
        message = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        for broker in sorted(self.machines.up - self.machines.frozen):
            try:
                connection = await self.looking.connection(broker)
                answer = await connection.send(message, timeout_seconds=ANSWER_SECONDS)
            except ConnectionLost:
                continue
            for part in answer.topics[0].partitions:
                if part.partition_index == index:
                    return int(part.leader_id)
        return NO_LEADER

    def batch(self, place: Place, records: int, acks: int) -> Sent:
        """A new batch without an answer."""
        values = tuple(f"client/{self._count + index}".encode() for index in range(records))
        self._count += records
        sent = Sent(place, values, acks, 0, told=UNANSWERED)
        self.log.append(sent)
        return sent

    async def connect(self, broker: int, count: int) -> None:
        """Have clients speak with a broker: their connections stay while it is frozen."""
        ready = self._ready.setdefault(broker, [])
        with contextlib.suppress(ConnectionLost):
            while len(ready) < count:
                ready.append(await self.looking.dial(broker))

    @asynccontextmanager
    async def _connection(self, broker: int) -> AsyncIterator[Connection]:
        """One for one request that may wait for long."""
        ready = self._ready.get(broker, [])
        while ready and not ready[-1].is_open:
            ready.pop()
        connection = ready.pop() if ready else await self.looking.dial(broker)
        try:
            yield connection
        finally:
            await connection.close()

    async def close(self) -> None:
        """End the connections that were not used."""
        for connection in [each for ready in self._ready.values() for each in ready]:
            await connection.close()

    async def send(self, sent: Sent, broker: int | None) -> None:
        """Send a batch to the leader, or to `broker`, and wait for its answer."""
        to = await self.leader(sent.place) if broker is None else broker
        if to == NO_LEADER:
            sent.told = NOBODY_LEADS
            return
        with contextlib.suppress(ConnectionLost):
            await self._produce(sent, to)

    async def _produce(self, sent: Sent, to: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([Record(n, now_ms, None, each) for n, each in enumerate(sent.values)])
        topic, index = sent.place
        part = PartitionProduceData(index=index, records=batch)
        message = ProduceRequest(
            acks=sent.acks, timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        )  # fmt: skip
        async with self._connection(to) as connection:
            if sent.acks == 0:
                await connection.send_unanswered(message, PRODUCE_BY_NAME)
                return
            answer = await connection.send(message, PRODUCE_BY_NAME)
        told = answer.responses[0].partition_responses[0]
        sent.told = ErrorCode(told.error_code).name
        if not told.error_code:
            sent.base_offset = told.base_offset

    async def lost(self) -> tuple[int, ...]:
        """Acknowledged offsets at which the leader's log has something else, or nothing."""
        kept: dict[int, bytes] = {}
        partition = self.looking.partition
        leader = NO_LEADER if partition is None else partition.leader
        if leader in self.machines.up:
            kept = await self._values(leader)
        return tuple(
            sorted(
                sent.base_offset + n
                for sent in self.log
                if sent.is_acknowledged and sent.place == self.place
                for n, value in enumerate(sent.values)
                if kept.get(sent.base_offset + n) != value
            )
        )

    async def _values(self, leader: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            part = (await self.looking.fetched(leader, offset)).responses[0].partitions[0]
            if part.error_code:
                raise ApiError(ErrorCode(part.error_code))
            records = part.records or b""
            for position, header in walk(records):
                for record in decode_records(records, position):
                    found[record.offset] = record.value or b""
                offset = header.next_offset
            if not records:
                return found
