"""Several fetches of a partition in flight: the same batches as with one, in their order."""

from __future__ import annotations

import asyncio
import random

import pytest

from anabranch.client import ranges
from anabranch.client.cluster import Cluster
from anabranch.client.committed import Committed
from anabranch.client.fetch import Fetched
from anabranch.client.ranges import ReadOptions, read_range
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.batch import patch, walk
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch, decode_records

PART_BYTES = 3000


class OneLog:
    """A partition's log with holes, batches of every size, and transactions; it answers fetches as
    a leader does, after some turns of the loop, and sometimes with an error."""

    def __init__(self, seed, *, faults=0.0, batches=150):
        self.chance = random.Random(seed)
        self.faults = faults
        self.batches = []
        self.ended = []
        self.under_way = self.most_under_way = self.asked = 0
        self.end = 0
        self._open = {}
        for _ in range(batches):
            self._append()
        for producer in list(self._open):
            self._finish(producer, commits=True)

    def _append(self):
        self.end += self.chance.choice((0, 0, 0, 3))
        producer = self.chance.randrange(4)
        if producer in self._open and self.chance.random() < 0.3:
            self._finish(producer, commits=self.chance.random() < 0.5)
            return
        count = self.chance.randrange(1, 12)
        values = [b"x" * self.chance.choice((1, 50, 300)) for _ in range(count)]
        records = [Record(at, 0, None, value) for at, value in enumerate(values)]
        is_transactional = producer > 0
        if is_transactional:
            self._open.setdefault(producer, self.end)
        self._put(build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0,
                              transactional=is_transactional), count)  # fmt: skip

    def _finish(self, producer, *, commits):
        first = self._open.pop(producer)
        if not commits:
            self.ended.append((producer, first, self.end))
        marker = build_end_marker(
            committed=commits, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
            now_ms=0,
        )  # fmt: skip
        self._put(marker, 1)

    def _put(self, batch, count):
        patch(batch, 0, self.end, 0)
        self.batches.append((self.end, self.end + count, bytes(batch)))
        self.end += count

    async def fetch(self, cluster, topic, offsets, **named):
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            for _ in range(self.chance.randrange(5)):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        if self.chance.random() < self.faults:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return [self._answer(offsets[0], named["partition_max_bytes"])]

    def _answer(self, offset, most_bytes):
        records, first, until = b"", None, offset
        for start, end, batch in self.batches:
            if end <= offset:
                continue
            if records and len(records) + len(batch) > most_bytes:
                records += batch[: most_bytes - len(records)]
                break
            first = start if first is None else first
            records, until = records + batch, end
        aborted = tuple(
            (producer, start) for producer, start, marker in self.ended
            if start < until and marker >= (first or 0)
        )  # fmt: skip
        return Fetched(0, records, self.end, 0, aborted, self.end)


@pytest.fixture
def read(monkeypatch):
    async def leader(state):
        return 0

    monkeypatch.setattr(ranges._Range, "_find_leader", leader)
    monkeypatch.setattr(ranges, "FIRST_PAUSE_SECONDS", 0)

    async def run(log, start, until, parts_ahead):
        monkeypatch.setattr(ranges, "fetch", log.fetch)
        reading = ReadOptions(
            isolation_level=1, part_bytes=PART_BYTES, ahead_bytes=parts_ahead * PART_BYTES
        )
        found, shown = [], []
        cluster = Cluster("127.0.0.1:1")
        async for part in read_range(cluster, "t", 0, start, until, reading=reading):
            committed = Committed(part.aborted)
            for position, header in walk(part.records):
                found.append(header.base_offset)
                if committed.shows(header, part.records, position):
                    whole = part.records[position : position + header.size_bytes]
                    shown += [each.offset for each in decode_records(whole)]
        return found, shown

    return run


@pytest.mark.parametrize("seed", range(40))
async def test_the_same_batches_come_in_the_same_order(read, seed):
    chance = random.Random(seed)
    plain = OneLog(seed)
    start = chance.randrange(plain.end // 2)
    until = chance.randrange(start + 1, plain.end)
    expected = await read(plain, start, until, 1)
    ahead = OneLog(seed, faults=chance.choice((0, 0.2)))
    found, shown = await read(ahead, start, until, 4)
    for got, wanted in zip((found, shown), expected, strict=True):
        assert [each for each in got if each < until] == [each for each in wanted if each < until]
    assert ahead.most_under_way <= 5, "four, and one for a gap"
    assert plain.most_under_way == 1


async def test_several_fetches_are_in_flight_and_few_are_in_vain(read):
    log = OneLog(0, batches=600)
    await read(log, 0, log.end, 4)
    assert log.most_under_way >= 4
    size = sum(len(batch) for _, _, batch in log.batches)
    assert log.asked < 3 * size / PART_BYTES
