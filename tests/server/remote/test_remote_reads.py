"""What readers lack is asked for once, so many at a time, and each is told in a step."""

from __future__ import annotations

import asyncio
import time
from random import Random
from types import SimpleNamespace

import pytest

from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.errors import ApiError
from anabranch.core.partition.bringers import Bringers
from anabranch.core.remote.cache import PIECE_BYTES, RemoteRead
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.remote.remote_reads import RemoteReads

SIZE = 3 * PIECE_BYTES + 5
READERS = 30
KEYS = [f"object-{each}" for each in range(5)]


PATIENT = {"remote_fetch_max_wait_ms": 30_000}


async def came(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def config(**values):
    return BrokerConfig.of(
        {name.replace("_", "."): str(value) for name, value in {**PATIENT, **values}.items()}
    )


def broker_of(**values):
    image = SimpleNamespace(topic_by_id=lambda _: None)
    return SimpleNamespace(bringers=Bringers(), config=config(**values), image=image)


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
    broker = broker_of(remote_log_reader_threads=most)
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
    broker = broker_of()
    reads = RemoteReads(broker, lambda: None, lambda: None)
    told = asyncio.Event()
    with pytest.raises(RemoteRead) as lacking:
        reads.cache.piece("object", 0, 5, SIZE)
    broker.bringers.bring([lacking.value], told.set)
    await told.wait()
    with pytest.raises(ApiError, match="cannot be used yet"):
        reads.cache.piece("object", 0, 5, SIZE)


async def read_all(reads, broker, key, size):
    """A reader from the start of an object to its end; how often it had to ask."""
    asked, at, found = 0, 0, b""
    while at < size:
        length = min(100_000, size - at)
        try:
            found += reads.cache.piece(key, at, length, size)
            at += length
        except RemoteRead as lacking:
            asked += 1
            told = asyncio.Event()
            broker.bringers.bring([lacking], told.set)
            await told.wait()
    return found, asked


class Steady:
    """A store that always answers, after a while."""

    def __init__(self, wait_s=0.0):
        self.whole, self.wait_s, self.calls = content("object-0"), wait_s, []

    async def read(self, key, ranges):
        self.calls.append(ranges)
        await asyncio.sleep(self.wait_s)
        return [self.whole[first : first + length] for first, length in ranges]


async def test_a_reader_that_goes_on_is_read_ahead_for_and_reads_no_byte_twice():
    broker = broker_of()
    reads = RemoteReads(broker, lambda: None, lambda: None)
    store = Steady()
    reads.start(store)
    assert await read_all(reads, broker, "object", SIZE) == (store.whole[:SIZE], 2)
    ranges = [each for call in store.calls for each in call]
    assert ranges[:2] == [(0, PIECE_BYTES), (PIECE_BYTES, PIECE_BYTES)]
    assert sum(length for _, length in ranges) == SIZE
    with pytest.raises(RemoteRead) as lacking:  # a reader elsewhere asks for what it wants
        reads.cache.piece("another", 2 * PIECE_BYTES, 5, SIZE)
    assert lacking.value.ask.ranges == ((2 * PIECE_BYTES, PIECE_BYTES),)
    await reads.stop()


async def test_who_has_waited_goes_on_and_what_it_asked_for_still_comes():
    steps = []
    broker = broker_of(remote_fetch_max_wait_ms=20)
    reads = RemoteReads(broker, lambda: steps.append("begin"), lambda: steps.append("settle"))
    reads.start(Steady(0.2))
    told = []
    with pytest.raises(RemoteRead) as lacking:
        reads.cache.piece("object", 0, 5, SIZE)
    broker.bringers.bring([lacking.value], lambda: told.append(len(steps)))
    await came(lambda: told)
    with pytest.raises(RemoteRead):
        reads.cache.piece("object", 0, 5, SIZE)
    await came(lambda: len(steps) == 4)
    assert len(reads.cache.piece("object", 0, 5, SIZE)) == 5
    assert told == [1]  # once
    await reads.stop()


async def test_reads_keep_to_the_brokers_rate_which_may_change():
    limit = {"remote_log_manager_fetch_max_bytes_per_second": PIECE_BYTES}
    broker = broker_of(**limit)
    reads = RemoteReads(broker, lambda: None, lambda: None)
    reads.start(Steady())
    begin = time.monotonic()
    for key in "abcd":  # the first second's bytes are there at once
        with pytest.raises(RemoteRead) as lacking:
            reads.cache.piece(key, 0, 5, SIZE)
        told = asyncio.Event()
        broker.bringers.bring([lacking.value], told.set)
        await told.wait()
        broker.config = config(**(limit if key < "c" else {}))
    assert len(reads.cache.piece("b", 0, 5, SIZE)) == 5
    assert 0.9 < time.monotonic() - begin < 20
    await reads.stop()
