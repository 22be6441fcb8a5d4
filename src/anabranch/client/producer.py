"""An idempotent producer of whole batches, for jobs that must not lose a record when leaders move.

What: `Producer.send` takes batches for any number of partitions and returns when they have room;
`produce` takes one and gives a future of where it lands; `flush` returns when all of them are
acknowledged. A batch is given as it was encoded, and is opened only if it is too large: producer
id, epoch, sequence number and checksum are filled in here, in the caller's memory. Each partition
is a lane (lanes.py) with its own sequence numbers. Rules kept: what waits for an acknowledgement is
bounded by `buffer_bytes`, or is the content of one `send`; the first failure that trying again
cannot mend ends the producer, and is raised from then on. Source: KIP-98, KIP-679. Not here:
transactions (transactional_producer.py), and which partition a record belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

from anabranch.client.cluster import Cluster, check, check_there, may_help
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.lanes import (
    Landed,
    Lane,
    LaneSettings,
    OutgoingBatch,
    ProduceFailed,
    Ticket,
    remedy,
)
from anabranch.client.produce import BY_NAME
from anabranch.core.errors import ERRORS, ApiError, ErrorCode
from anabranch.core.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

T = TypeVar("T")


class ProducerSettings(NamedTuple):
    """What Kafka's producer settings of the same names mean, with Kafka's defaults."""

    lane: LaneSettings = LaneSettings()
    buffer_bytes: int = 32 << 20
    max_block_ms: int = 60_000


class Producer:
    """Batches to the leaders of their partitions, made by `open` and used in one event loop."""

    transactional_id: str | None = None
    newest_produce: int = BY_NAME

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self.producer_id = -1
        self.producer_epoch = -1
        self.settings = settings
        self.failure: Exception | None = None
        self._cluster = cluster
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._held_bytes = 0
        self._handles: set[asyncio.Future[tuple[Landed, ...]]] = set()
        self._changed = asyncio.Event()

    @classmethod
    async def open(cls, cluster: Cluster, settings: ProducerSettings | None = None) -> Producer:
        """A producer on a cluster that stays the caller's; raises ApiError or ConnectionLost."""
        producer = cls(cluster, settings or ProducerSettings())
        if producer.settings.lane.is_idempotent:
            await producer._while_it_may_help(producer._take_id, "A producer id")
        return producer

    async def _take_id(self) -> None:
        answer: InitProducerIdResponse = await self._cluster.send(
            InitProducerIdRequest(transactional_id=None)
        )
        check(answer.error_code)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    # Partitions and their leaders.

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; it is created when the cluster creates topics by itself.

        Waits for it for `max_block_ms` at most. Raises ProduceFailed, or ApiError.
        """
        if not self._leaders.get(topic):
            await self._while_it_may_help(lambda: self.refresh(topic), f"Topic {topic!r}")
        return len(self._leaders[topic])

    async def refresh(self, topic: str) -> None:
        """Ask once who leads the partitions of a topic; those who ask meanwhile get this answer."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.create_task(self._ask(topic))
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        await asyncio.shield(asking)

    async def _ask(self, topic: str) -> None:
        found = (await self._cluster.metadata([topic], creates=True)).topics[0]
        if found.error_code:
            code = ErrorCode(found.error_code)
            check_there(code, topic)
            raise ApiError(code, f"Topic {topic!r}: {ERRORS[code].sentence}")
        self._leaders[topic] = {each.partition_index: each.leader_id for each in found.partitions}

    async def leader_of(self, topic: str, partition: int) -> Connection:
        """A connection to the partition's leader, as far as it is known."""
        leader = self._leaders.get(topic, {}).get(partition, -1)
        if leader not in self._cluster.brokers:
            raise ApiError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"Partition {topic}-{partition} has no available leader.",
            )
        return await self._cluster.connection_to(leader)

    async def _while_it_may_help(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Try for `max_block_ms`; the failure then says for what."""
        limit_ms = self.settings.max_block_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_ms / 1000
        for failures in count(1):
            try:
                return await attempt()
            except (ApiError, ConnectionLost) as fault:
                pause_seconds = self.settings.lane.pause_ms(failures) / 1000
                if not may_help(fault):
                    raise
                if loop.time() + pause_seconds > deadline:
                    raise ProduceFailed(
                        f"{what} could not be had within max.block.ms ({limit_ms} ms): {fault}"
                        f"{remedy(fault)}"
                    ) from None
            await asyncio.sleep(pause_seconds)
        raise AssertionError("count() never ends")

    # Sending.

    async def send(self, batches: Sequence[OutgoingBatch]) -> None:
        """Hand over batches, those of a partition in the order of their records.

        Returns when there is room for them; they are the producer's from then on, memory included.
        Raises what ended the producer.
        """
        size = sum(len(each.batch) for each in batches)
        await self._room_for(size)
        if not batches:
            return
        self._held_bytes += size
        ticket = Ticket(len(batches), lambda: self._give_back(size))
        for batch in batches:
            self._lane(batch.topic, batch.partition).put(batch, ticket)

    async def produce(
        self, topic: str, partition: int, batch: bytearray | memoryview
    ) -> asyncio.Future[tuple[Landed, ...]]:
        """Hand over one batch when there is room for it; the future tells where it landed.

        That is one place, or several in the order of its records where the topic's limit had it
        cut. The future fails with what ended the producer.
        """
        size = len(batch)
        await self._room_for(size)
        handle: asyncio.Future[tuple[Landed, ...]] = asyncio.get_running_loop().create_future()
        self._handles.add(handle)
        handle.add_done_callback(self._settled)

        def done() -> None:
            self._give_back(size)
            if not handle.done():
                handle.set_result(tuple(sorted(ticket.landed)))

        ticket = Ticket(1, done)
        self._held_bytes += size
        self._lane(topic, partition).put(OutgoingBatch(topic, partition, batch), ticket)
        return handle

    async def _room_for(self, size: int) -> None:
        most = self.settings.buffer_bytes
        await self._until(lambda: self._held_bytes == 0 or self._held_bytes + size <= most)

    def _settled(self, handle: asyncio.Future[tuple[Landed, ...]]) -> None:
        self._handles.discard(handle)
        if not handle.cancelled():
            handle.exception()  # who does not look at it learns the same from flush()

    async def flush(self) -> None:
        """Wait until everything is acknowledged; raises what ended the producer."""
        await self._until(lambda: self._held_bytes == 0)

    async def close(self) -> None:
        """Stop sending; what is not acknowledged is given up."""
        await self._give_up(ProduceFailed("The producer was closed before the batch was written."))

    async def _give_up(self, why: Exception) -> None:
        tasks = [each.task for each in self._lanes.values() if each.task is not None]
        for task in [*tasks, *self._asking.values()]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail_handles(why)

    def fail(self, fault: Exception) -> None:
        """End the producer: the first failure is the one that is told."""
        self.failure = self.failure or fault
        self._fail_handles(self.failure)
        self._changed.set()

    def _fail_handles(self, why: Exception) -> None:
        for handle in list(self._handles):
            if not handle.done():
                handle.set_exception(why)

    def _lane(self, topic: str, partition: int) -> Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = Lane(self, topic, partition, self.settings.lane)
            self._lanes[topic, partition] = lane
        return lane

    def _give_back(self, size: int) -> None:
        self._held_bytes -= size
        self._changed.set()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while True:
            if self.failure is not None:
                raise self.failure
            if is_so():
                return
            self._changed.clear()
            await self._changed.wait()
