"""What readers lack is asked for once, so many at a time, and each is told in a step."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace

import pytest

from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.errors import ApiError
from anabranch.core.partition.bringers import Bringers
from anabranch.core.remote.cache import PIECE_BYTES, RemoteRead
from anabranch.server.remote.remote_reads import RemoteReads

SIZE = 3 * PIECE_BYTES + 5
READERS = 30
KEYS = [f"object-{each}" for each in range(5)]


def content(key):
    return (key.encode() * (SIZE // 8 + 1))[:SIZE]


class Store:
    """Answers late, in any order, and fails now and then."""

    def __init__(self, random):
        self.random, self.calls, self.most, self.running = random, [], 0, 0

    async def read(self, key, ranges):
        self.calls.append((key, ranges))
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        self.running -= 1
        if self.random.random() < 0.2:
            raise ObjectsAway("no answer") if self.random.random() < 0.5 else ValueError("odd")
        return [content(key)[first : first + size] for first, size in ranges]


@pytest.mark.parametrize("seed", range(20))
async def test_any_readers_at_once(seed):
    random = Random(seed)
    steps: list[str] = []
    most = random.choice((1, 2, 10))
    broker = SimpleNamespace(
        bringers=Bringers(),
        config=SimpleNamespace(remote_log_reader_threads=most),
        image=SimpleNamespace(topic_by_id=lambda _: None),
    )
    reads = RemoteReads(broker, lambda: steps.append("begin"), lambda: steps.append("settle"))
    store = Store(random)
    ends: dict[int, object] = {}
    all_ended = asyncio.Event()

    def look(reader, key, first, length):
        try:
            ends[reader] = bytes(reads.cache.piece(key, first, length, SIZE))
        except RemoteRead as lacking:

            def again():
                assert steps[-1] == "begin"
                look(reader, key, first, length)

            broker.bringers.bring([lacking], again)
        except ApiError as refused:
            ends[reader] = refused
        if len(ends) == READERS:
            all_ended.set()

    reads.start(store)
    wanted = {}
    for reader in range(READERS):
        first = random.randrange(SIZE - 1)
        length = random.randrange(1, min(SIZE - first, 2 * PIECE_BYTES) + 1)
        wanted[reader] = random.choice(KEYS), first, length
        look(reader, *wanted[reader])
        if random.random() < 0.3:
            await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await all_ended.wait()
    for reader, (key, first, length) in wanted.items():
        found = ends[reader]
        assert isinstance(found, ApiError) or found == content(key)[first : first + length]
    assert store.most <= most
    assert steps == ["begin", "settle"] * (len(steps) // 2)
    await reads.stop()


async def test_before_there_is_a_store_a_reader_is_refused_for_a_moment():
    broker = SimpleNamespace(
        bringers=Bringers(), config=SimpleNamespace(remote_log_reader_threads=1)
    )
    reads = RemoteReads(broker, lambda: None, lambda: None)
    told = asyncio.Event()
    with pytest.raises(RemoteRead) as lacking:
        reads.cache.piece("object", 0, 5, SIZE)
    broker.bringers.bring([lacking.value], told.set)
    await told.wait()
    with pytest.raises(ApiError, match="cannot be used yet"):
        reads.cache.piece("object", 0, 5, SIZE)
