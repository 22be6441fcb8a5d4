"""A cluster's store and coordinator without brokers: objects are put, committed and noted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.layout import Header, Piece, encode
from anabranch.core.diskless.manifests import ManifestLog
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.diskless.rows import Batch, Commit, LogKey, NewLogs
from anabranch.core.types import TopicId
from anabranch.core.wire.records import Record, build_batch
from anabranch.server.diskless.manifests import Manifests

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
TOPIC = TopicId(bytes([7]) * 16)
RIVER, DELTA = LogKey(TOPIC, 0), LogKey(TOPIC, 1)
LEASE_MS = 60_000


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a task does in the background."""
    try:
        async with asyncio.timeout(10):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError("what was awaited did not happen within 10 s") from None


def records(count: int) -> bytes:
    return bytes(build_batch([Record(each, 5, None, b"%d" % each) for each in range(count)]))


class Pieces:
    """A large object in pieces, which are given again each time, and overwritten once the next one
    is asked for; a piece that is a fault is raised."""

    def __init__(self, *pieces: bytes | Exception, byte_size: int | None = None) -> None:
        self.given = pieces
        whole = sum(len(each) for each in pieces if isinstance(each, bytes))
        self.byte_size = whole if byte_size is None else byte_size

    async def pieces(self) -> AsyncIterator[bytearray]:
        for each in self.given:
            if isinstance(each, Exception):
                raise each
            piece = bytearray(each)
            yield piece
            piece[:] = b"?" * len(piece)


@dataclass
class Writer:
    """A broker's writes, one object at a time."""

    store: ObjectStore
    coordinator: Coordinator
    manifests: Manifests
    broker: int = 1
    epoch: int = 3
    sequences: dict[LogKey, int] = field(default_factory=dict)

    async def put(self, *wanted: tuple[LogKey, int]) -> Commit:
        """Put an object of one batch for each (partition, records)."""
        [prepared] = await self.coordinator.prepare(self.broker, self.epoch, 1, LEASE_MS)
        pieces = [Piece(key, records(count), count, 5) for key, count in wanted]
        encoded = encode(Header(CLUSTER, self.broker, prepared.object_id), pieces)
        await self.store.put(prepared.object_key, encoded.buffers)
        batches = tuple(
            Batch(piece.key, at, len(piece.records), piece.record_count, 5)
            for piece, at in zip(pieces, encoded.positions, strict=True)
        )
        return Commit(*prepared[:2], encoded.byte_size, self.broker, self.epoch, batches)

    async def write(self, *wanted: tuple[LogKey, int]) -> str:
        """Put and commit an object, and note it; its key."""
        commit = await self.put(*wanted)
        self.manifests.committed(commit, await self.coordinator.commit(commit))
        return commit.object_key


async def new_writer(store: ObjectStore, coordinator: Coordinator) -> Writer:
    """A store that is claimed, a coordinator with one topic of two partitions, and who writes."""
    await store.check(CLUSTER)
    await coordinator.take_control(1)
    await coordinator.create_logs(1, [NewLogs(TOPIC, "river", 0, 2)])
    await coordinator.register(1, 3)
    clock = itertools.count()
    notes = ManifestLog(CLUSTER, 1, 3, {TOPIC: "river"}.get)
    return Writer(store, coordinator, Manifests(store, notes, lambda: next(clock)))
