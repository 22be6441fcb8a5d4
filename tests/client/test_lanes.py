"""Batches on their way to one partition, against a broker that refuses, loses and answers late."""

from __future__ import annotations

import asyncio
import random

import pytest

from anabranch.client.connection import ConnectionLost
from anabranch.client.lanes import (
    Lane,
    LaneSettings,
    OutgoingBatch,
    ProduceFailed,
    Ticket,
    cut_batch,
)
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.batch import SEQUENCE_MODULUS, crc_is_valid, read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from anabranch.core.wire.records import Record, build_batch, decode_records

QUICK = LaneSettings(retry_backoff_ms=0, retry_backoff_max_ms=0)


def batch_of(values):
    return build_batch([Record(at, 7, None, value) for at, value in enumerate(values)])


class OneLeader:
    """A partition that takes a producer's batches as Kafka does, on a network that loses answers.

    `trouble` says what happens to the next request: None, an error code, "lost" (before the batch
    was appended) or "lost answer" (after it). It remembers five batches of the producer; as long as
    it has none, it takes any sequence number.
    """

    producer_id = 9
    producer_epoch = 0
    transactional_id = None
    newest_produce = 12

    def __init__(self, trouble, *, most_bytes=1 << 20, seed=0, without_leader=0.0):
        self.log = []
        self.sizes = []
        self.failure = None
        self.under_way = self.most_under_way = 0
        self._trouble = trouble
        self._most_bytes = most_bytes
        self._without_leader = without_leader
        self._random = random.Random(seed)
        self._last = []
        self._next = 0

    async def leader_of(self, topic, partition):
        if self._random.random() < self._without_leader:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self

    async def refresh(self, topic):
        pass

    def fail(self, fault):
        self.failure = fault

    def version_for(self, api_key):
        return 12

    async def send(self, request, version, *, timeout_seconds):
        (asked,) = request.topic_data[0].partition_data
        trouble = self._trouble()
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            code = ErrorCode.NONE if trouble == "lost answer" else trouble
            if not code:
                code = self._append(bytes(asked.records))
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)
            if trouble in ("lost", "lost answer"):
                raise ConnectionLost("the connection ended")
        finally:
            self.under_way -= 1
        base_offset = -1 if code else len(self.log) - read_header(asked.records).record_count
        result = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[result])]
        )

    def _append(self, batch):
        header = read_header(batch)
        assert crc_is_valid(batch, 0, len(batch))
        assert header.producer_id == self.producer_id
        if len(batch) > self._most_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        if header.base_sequence in self._last:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if self._last and header.base_sequence != self._next:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._next = (header.base_sequence + header.record_count) % SEQUENCE_MODULUS
        self._last = [*self._last, header.base_sequence][-5:]
        self.log += [each.value for each in decode_records(batch)]
        self.sizes.append(header.record_count)
        return ErrorCode.NONE


async def write(leader, batches, settings=QUICK):
    """Send all batches; the number of tickets that were never used up."""
    lane = Lane(leader, "t", 0, settings)
    left = len(batches)

    def done():
        nonlocal left
        left -= 1

    for batch in batches:
        lane.put(OutgoingBatch("t", 0, batch), Ticket(1, done))
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await lane.task
    return left


@pytest.mark.parametrize("seed", range(200))
async def test_every_record_is_written_once_and_in_order_whatever_goes_wrong(seed):
    chance = random.Random(seed)
    troubles = [
        "lost", "lost answer", ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    ]  # fmt: skip
    leader = OneLeader(
        lambda: chance.choice(troubles) if chance.random() < 0.3 else ErrorCode.NONE,
        most_bytes=chance.choice((120, 1 << 20)), seed=seed, without_leader=0.3,
    )  # fmt: skip
    values = [b"%d" % each for each in range(chance.randrange(1, 60))]
    batches, rest = [], list(values)
    while rest:
        size = chance.randrange(1, 8)
        batches.append(batch_of(rest[:size]))
        rest = rest[size:]
    left = await write(leader, batches)
    assert leader.failure is None
    assert leader.log == values
    assert left == 0
    assert leader.most_under_way <= 5


async def test_several_batches_are_under_way_at_once():
    leader = OneLeader(lambda: ErrorCode.NONE, seed=1)
    await write(leader, [batch_of([b"%d" % each]) for each in range(50)])
    assert leader.most_under_way > 1


async def test_a_batch_over_the_topics_limit_is_cut():
    leader = OneLeader(lambda: ErrorCode.NONE, most_bytes=300)
    values = [b"x" * 60 + b"%d" % each for each in range(10)]
    assert await write(leader, [batch_of(values), batch_of([b"after"])]) == 0
    assert leader.log == [*values, b"after"]
    assert max(leader.sizes) < 10


async def test_each_part_of_a_batch_tells_where_it_landed():
    leader = OneLeader(lambda: ErrorCode.NONE, most_bytes=300)
    tickets = [Ticket(1, lambda: None) for _ in range(2)]
    lane = Lane(leader, "t", 0, QUICK)
    values = [b"x" * 60 + b"%d" % each for each in range(10)]
    lane.put(OutgoingBatch("t", 0, batch_of(values)), tickets[0])
    lane.put(OutgoingBatch("t", 0, batch_of([b"after"])), tickets[1])
    await lane.task
    offset = 0
    for landed in tickets[0].landed:
        assert landed.base_offset == offset
        offset += landed.record_count
    assert offset == 10
    assert tickets[1].landed == [(10, 1)]


async def test_a_batch_that_the_broker_has_but_no_longer_knows_tells_no_offset():
    answers = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
    leader = OneLeader(lambda: answers.pop() if answers else ErrorCode.NONE)
    ticket = Ticket(1, lambda: None)
    lane = Lane(leader, "t", 0, QUICK)
    lane.put(OutgoingBatch("t", 0, batch_of([b"a", b"b"])), ticket)
    await lane.task
    assert ticket.landed == [(-1, 2)]


async def test_a_record_over_the_topics_limit_ends_the_producer_with_the_remedy():
    leader = OneLeader(lambda: ErrorCode.NONE, most_bytes=300)
    await write(leader, [batch_of([b"x" * 400])])
    assert isinstance(leader.failure, ProduceFailed)
    assert "1 record for t-0" in str(leader.failure)
    assert "Raise the topic's max.message.bytes" in str(leader.failure)


async def test_what_is_not_acknowledged_in_time_is_told_with_the_last_answer():
    leader = OneLeader(lambda: ErrorCode.NOT_ENOUGH_REPLICAS)
    settings = QUICK._replace(delivery_timeout_ms=50, retry_backoff_ms=5)
    await write(leader, [batch_of([b"a", b"b"])], settings)
    text = str(leader.failure)
    assert "2 records for t-0 were not acknowledged within delivery.timeout.ms (50 ms)" in text
    assert "Fewer replicas are in sync" in text


async def test_retries_are_counted_between_acknowledgements():
    troubles = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE] * 3
    leader = OneLeader(lambda: troubles.pop(0) if troubles else ErrorCode.NONE)
    settings = QUICK._replace(retries=1, in_flight=1)
    assert await write(leader, [batch_of([b"%d" % each]) for each in range(3)], settings) == 0
    always = OneLeader(lambda: ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await write(always, [batch_of([b"a"])], settings)
    assert "after 2 attempts: NOT_LEADER_OR_FOLLOWER" in str(always.failure)


async def test_a_gap_that_the_broker_finds_is_not_passed_over():
    leader = OneLeader(lambda: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    await write(leader, [batch_of([b"a"])])
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(leader.failure)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_halves_of_a_batch_have_its_records_and_numbers(codec):
    records = [Record(at, 5, b"k%d" % at, None, (("h", b"v"),)) for at in range(7)]
    first, second = cut_batch(
        build_batch(
            records, codec=codec, producer_id=3, producer_epoch=1,
            base_sequence=SEQUENCE_MODULUS - 2,
        )
    )  # fmt: skip
    told = [
        (each.key, each.timestamp, each.headers)
        for half in (first, second)
        for each in decode_records(half)
    ]
    assert told == [(each.key, each.timestamp, each.headers) for each in records]
    heads = [read_header(half) for half in (first, second)]
    assert [each.base_sequence for each in heads] == [SEQUENCE_MODULUS - 2, 1]
    assert {(each.producer_id, each.producer_epoch, each.codec) for each in heads} == {
        (3, 1, codec)
    }
    assert [each.base_offset for each in heads] == [0, 0]
