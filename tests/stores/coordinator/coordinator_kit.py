"""What the tests of all coordinators share: batches, one that is prepared and committed, engines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.rows import Batch, Commit, Committed, LogKey, NewLogs, Prepared
from anabranch.core.types import TopicId

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
TOPICS = [TopicId(bytes([number]) * 16) for number in range(1, 5)]
RIVER = LogKey(TOPICS[0], 0)
DELTA = LogKey(TOPICS[0], 1)
LEASE_MS = 60_000
BROKER, EPOCH = 1, 7


@dataclass
class Engine:
    """One database. `connect` gives a further coordinator on it, as another broker has; `advance`
    lets time pass."""

    name: str
    connect: Callable[[], Awaitable[Coordinator]]
    advance: Callable[[int], None]
    make_empty: Callable[[], Awaitable[Coordinator]]
    """A coordinator on another database of this kind."""


def batch(
    key: LogKey = RIVER,
    count: int = 1,
    *,
    size: int = 100,
    timestamp: int = 1000,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
) -> Batch:
    """A batch whose place is given by `commit`."""
    return Batch(key, 0, size, count, timestamp, 0, producer, epoch, sequence)


def placed(prepared: Prepared, *batches: Batch, epoch: int = EPOCH, broker: int = BROKER) -> Commit:
    """The commit of an object in which batches lie one after another."""
    at, laid = 0, []
    for each in batches:
        laid.append(each._replace(byte_offset=at))
        at += each.byte_size
    return Commit(prepared.object_id, prepared.object_key, at, broker, epoch, tuple(laid))


async def prepare(on: Coordinator, *, epoch: int = EPOCH, broker: int = BROKER) -> Prepared:
    """One object."""
    (prepared,) = await on.prepare(broker, epoch, 1, LEASE_MS)
    return prepared


async def commit(on: Coordinator, *batches: Batch) -> Committed:
    """An object of these batches, prepared and committed."""
    return await on.commit(placed(await prepare(on), *batches))


async def make_river(on: Coordinator, partitions: int = 2) -> None:
    """A topic of two partitions, and the broker that writes to it."""
    await on.take_control(1)
    await on.create_logs(1, [NewLogs(TOPICS[0], "river", 0, partitions)])
    await on.register(BROKER, EPOCH)
