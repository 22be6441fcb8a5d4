"""Behind a batch whose length is damaged, reading goes on where batches are whole again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.damage import behind_damage
from anabranch.client.fetch import Fetched
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.records import Record, build_batch


class Broker:
    """Serves by offset, as Apache Kafka does: from the batch that holds it to the end."""

    def __init__(self, counts, damaged, code=None):
        self.batches, self.damaged, self.code = [], damaged, code
        first = 0
        for number, count in enumerate(counts):
            records = [Record(first + each, 0, None, b"v") for each in range(count)]
            batch = build_batch(records, base_offset=first)
            if number in damaged:
                batch[8:12] = (1 << 28).to_bytes(4, "big")
            self.batches.append((first, first + count, bytes(batch)))
            first += count
        self.end = first
        self.asked = 0

    async def fetch(self, offset):
        self.asked += 1
        at = next(n for n, (first, end, _) in enumerate(self.batches) if first <= offset < end)
        if at in self.damaged and self.code is not None:
            raise ApiError(self.code)
        return Fetched(
            0, b"".join(each for *_, each in self.batches[at:]), self.end, 0, (), self.end
        )


@given(st.lists(st.integers(1, 40), min_size=2, max_size=12), st.data())
def test_it_goes_on_at_the_first_whole_batch(counts, data):
    first = data.draw(st.integers(0, len(counts) - 2))
    last = data.draw(st.integers(first, len(counts) - 2))
    code = data.draw(st.sampled_from([None, ErrorCode.CORRUPT_MESSAGE]))
    asyncio.run(_goes_on(Broker(counts, set(range(first, last + 1)), code), first, last))


async def _goes_on(broker, first, last):
    begin, behind = broker.batches[first][0], broker.batches[last][1]
    assert await behind_damage(broker.fetch, begin, broker.end) == (behind, behind)
    assert await behind_damage(broker.fetch, begin, behind) is None


async def test_a_large_batch_takes_few_questions():
    broker = Broker([1, 100_000, 1], {1})
    assert await behind_damage(broker.fetch, 1, broker.end) == (100_001, 100_001)
    assert broker.asked < 40


async def test_another_fault_is_no_damage():
    broker = Broker([1, 5, 5], {1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(ApiError):
        await behind_damage(broker.fetch, 1, broker.end)
