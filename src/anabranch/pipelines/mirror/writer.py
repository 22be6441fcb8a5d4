"""What a slot writes with: rounds of batches that land together with position and index.

What: `ExactlyOnce` ends each round as one transaction; `AtLeastOnce` acknowledges records first and
writes index and position after them, the position last and at most once an interval. Rules kept:
what the position says was mirrored is in the index; a batch whose offset a broker does not tell (a
repetition that it no longer remembers) ends the writer, as the index would have a hole.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from anabranch.client.cluster import Cluster
from anabranch.client.lanes import LaneSettings, ProduceFailed
from anabranch.client.partitioner import partition_for
from anabranch.client.producer import Producer, ProducerSettings
from anabranch.client.transactional_producer import TransactionalProducer
from anabranch.core.mirror.index import IndexRun
from anabranch.core.mirror.landed import landed_runs
from anabranch.core.mirror.restamp import Outgoing
from anabranch.core.wire.records import Record, build_batch

BUFFER_BYTES = 64 << 20
DELIVERY_MS = 30_000
"""Less than Kafka's two minutes: a slot that waits in vain begins again from what is committed."""
SETTINGS = ProducerSettings(
    LaneSettings(delivery_timeout_ms=DELIVERY_MS, request_timeout_ms=20_000, retry_backoff_ms=20),
    buffer_bytes=BUFFER_BYTES,
)


class Sent(NamedTuple):
    """A batch for a partition of the target."""

    topic: str
    partition: int
    outgoing: Outgoing


class KeyedRecords(NamedTuple):
    """Records for a topic of the mirror's own; a key's hash says which partition has it."""

    topic: str
    partitions: int
    records: Mapping[bytes, bytes | None]


class Writer(Protocol):
    """How a slot writes. A round is `begin`, `send`, `note` and `end`."""

    def begin(self) -> None:
        """Begin a round."""
        ...

    async def send(self, batches: Iterable[Sent]) -> list[list[IndexRun]]:
        """Where the records of each batch landed."""
        ...

    async def note(self, *noted: KeyedRecords) -> None:
        """Write records of the mirror's own, and wait until they are there."""
        ...

    async def end(self) -> None:
        """The round is there for readers."""
        ...

    async def abort(self) -> None:
        """Give the round up."""
        ...

    async def close(self) -> None:
        """Write no more."""
        ...


class AtLeastOnce:
    """An idempotent producer: after a crash some records come twice."""

    is_exactly_once = False

    def __init__(self, target: Cluster, producer: Producer) -> None:
        self._target = target
        self._producer = producer

    @classmethod
    async def open(cls, target: Cluster) -> AtLeastOnce:
        """A writer with a producer id of its own."""
        return cls(target, await Producer.open(target, SETTINGS))

    def begin(self) -> None:
        """See Writer."""

    async def send(self, batches: Iterable[Sent]) -> list[list[IndexRun]]:
        """Send all batches, then wait for the offsets of each."""
        sent = []
        for topic, partition, outgoing in batches:
            handle = await self._producer.produce(topic, partition, outgoing.batch)
            sent.append((outgoing.runs, handle))
        found = []
        for runs, handle in sent:
            pieces = await handle
            if any(each.base_offset < 0 for each in pieces):
                raise ProduceFailed(
                    "A broker has a batch already and no longer knows where; what was not "
                    "acknowledged is mirrored again."
                )
            found.append(landed_runs(runs, pieces))
        return found

    async def note(self, *noted: KeyedRecords) -> None:
        """See Writer."""
        for each in noted:
            await self._hand_over(each)
        await self._producer.flush()

    async def _hand_over(self, noted: KeyedRecords) -> None:
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for key, value in noted.records.items():
            partition = partition_for(key, noted.partitions)
            by_partition.setdefault(partition, []).append((key, value))
        now_ms = time.time_ns() // 1_000_000
        for partition, pairs in sorted(by_partition.items()):
            records = [Record(index, now_ms, *pair) for index, pair in enumerate(pairs)]
            await self._producer.produce(noted.topic, partition, build_batch(records))

    async def end(self) -> None:
        """See Writer."""

    async def abort(self) -> None:
        """See Writer: an idempotent producer that has failed is of no further use, and another one
        takes its place."""
        await self._producer.close()
        self._producer = await Producer.open(self._target, SETTINGS)

    async def close(self) -> None:
        """See Writer."""
        await self._producer.close()


class ExactlyOnce(AtLeastOnce):
    """One transaction a round, under the transactional id of the slot."""

    is_exactly_once = True
    _producer: TransactionalProducer

    @classmethod
    async def open_as(cls, target: Cluster, transactional_id: str) -> ExactlyOnce:
        """A writer; who had the id before is fenced, and its transaction is ended first."""
        producer = TransactionalProducer(target, transactional_id, SETTINGS)
        await producer.init()
        return cls(target, producer)

    def begin(self) -> None:
        self._producer.begin()

    async def end(self) -> None:
        await self._producer.commit()

    async def abort(self) -> None:
        await self._producer.abort()
