"""A partition whose older part is in another store answers as one that has everything on its disk.

Two nodes get the same records. One keeps them; of the other, a made-up store holds the older part,
and nothing of that is in memory before it was brought. Handlers are asked, and answers compared.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from tests.core.api.in_memory_node import START_MS, InMemoryNode, batch
from tests.core.log.support import marker

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.log.log import Log
from anabranch.core.log.lookup import AbortedTransaction, aborted_ranges
from anabranch.core.outcome import Cold, Wait
from anabranch.core.partition.bringers import apart
from anabranch.core.partition.tail import NO_TAIL, Tail
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

END = 2**62


class Missing(ColdRead):
    """A question that the store was not asked yet."""

    bringer = Bringer.REMOTE

    def __init__(self, question: tuple[Any, ...]) -> None:
        Exception.__init__(self, str(question))
        self.question, self.position, self.length = question, 0, 0


class Stored(Tail):
    """The older part as a store has it: all that a log holds before `end_offset`."""

    end_offset = 0

    def __init__(self, whole: Log) -> None:
        self.whole = whole
        self.brought: set[tuple[Any, ...]] = set()

    def ask(self, *question: Any) -> None:
        if question not in self.brought:
            raise Missing(question)
        self.brought.discard(question)  # it does not stay for long

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> bytes:
        if offset >= self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.ask("read", offset)
        upto = min(upto, self.end_offset)
        how = {"max_bytes": max_bytes, "upto": upto, "at_least_one": at_least_one}
        return bytes(self.whole.read(offset, **how))

    def aborted_transactions(self, first: int, upto: int) -> list[Any]:
        self.ask("aborted", first)
        self.brought.add(("read", first))  # both are wanted for one answer
        found = []
        for segment in self.whole.segments[max(0, self.whole.segment_index(first)) :]:
            if self.whole.end_of(segment) > self.end_offset:
                break
            for each in aborted_ranges(self.whole, segment):
                if each.last_offset >= first and each.first_offset < upto:
                    found.append(AbortedTransaction(each.producer_id, each.first_offset))
        return found

    def epoch_of(self, offset: int) -> int:
        return self.whole.epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        entries = [each for each in self.whole.epochs.entries if each[1] < self.end_offset]
        known = LeaderEpochs(entries)
        return known.end_offset(min(epoch, known.latest), self.end_offset)

    def offset_for_timestamp(self, timestamp: int, first: int) -> Any:
        self.ask("time", timestamp)
        assert first == self.whole.start_offset
        return self.whole.offset_for_timestamp(timestamp, upto=self.end_offset)

    def max_timestamp_offset(self, first: int) -> Any:
        self.ask("newest")
        return self.whole.max_timestamp_offset(upto=END)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = InMemoryNode(), InMemoryNode()
        for node in self.nodes:
            node.topic(configs={"retention.ms": "-1"})
        self.whole, self.tiered = (node.replica() for node in self.nodes)
        self.tail = self.tiered.older = Stored(self.whole.log)
        config = msgspec.structs.replace(self.whole.log.config, segment_bytes=400)
        self.whole.log.config = config
        self.keeps_some = self.random.random() < 0.3
        """Whether some of what is copied stays: then it is in both parts."""
        self.tiered.log.config = msgspec.structs.replace(config, has_remote=True)
        self.epoch = 0
        self.open: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.remote_answers = 0

    def append(self, **how: Any) -> None:
        timestamp = START_MS + self.random.randrange(10_000)
        count = self.random.randint(1, 4)
        for replica in (self.whole, self.tiered):
            records = batch(count, timestamp=timestamp, **how)
            replica.append(records, required_acks=-1, now_ms=START_MS)

    def in_transaction(self) -> None:
        producer = self.random.randrange(1, 4)
        sequence = self.sequences.get(producer, 0)
        before = self.whole.log.end_offset
        self.append(
            producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self.sequences[producer] = sequence + self.whole.log.end_offset - before
        self.open.setdefault(producer, before)

    def decide(self) -> None:
        if self.open:
            producer = next(iter(self.open))
            del self.open[producer]
            committed = self.random.random() < 0.4
            for replica in (self.whole, self.tiered):
                replica.append(
                    marker(producer, committed=committed),
                    required_acks=-1, now_ms=START_MS, client=False,
                )  # fmt: skip

    def elect(self) -> None:
        self.epoch += 1
        for node in self.nodes:
            node.change("t", leader_epoch=self.epoch)

    def tier(self) -> None:
        log = self.tiered.log
        upto = self.whole.last_stable_offset
        ends = [log.end_of(each) for each in log.segments[:-1]]
        ends = [each for each in ends if each <= upto]
        if ends:
            end = self.random.choice(ends)
            self.tail.end_offset = max(self.tail.end_offset, end)
            log.noted_start_offset = log.start_offset
            upto = ends[0] if self.keeps_some else self.tail.end_offset
            log.drop_local(upto, START_MS, self.tiered.high_watermark)

    def forget(self) -> None:
        """As in a copy that began at its leader's local start."""
        if self.tiered.log.segments:
            self.tiered.log.epochs.cut_start(self.tiered.log.local_start_offset)

    def delete(self) -> None:
        offset = self.random.randint(self.whole.start_offset, self.whole.high_watermark)
        if self.random.random() < 0.05:
            for replica in (self.whole, self.tiered):
                replica.delete_before(offset)

    def ask(self, node: InMemoryNode, message: Any, version: int) -> Any:
        outcome = node.send(message, version)
        for _ in range(20):
            if not isinstance(outcome, Cold):
                return outcome
            warmed, asked = apart(outcome.reads)
            assert not warmed
            self.remote_answers += 1
            self.tail.brought.update(each.question for each in asked)
            outcome = outcome.poll(START_MS, False)
        raise AssertionError("it asks without an end")

    def compare(self, message: Any, version: int) -> None:
        whole, tiered = (self.ask(node, message, version) for node in self.nodes)
        if isinstance(whole, Wait):  # the controller is asked whether this broker leads
            whole, tiered = whole.poll(START_MS, True), tiered.poll(START_MS, True)
        assert tiered == whole

    def fetch(self, offset: int = -1, epoch: int | None = None) -> None:
        start, end = self.whole.start_offset, self.whole.end_offset
        if epoch is None:
            epoch = self.random.choice([-1, *range(self.epoch + 1)])
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset if offset >= 0 else self.random.randint(max(0, start - 2), end + 1),
            current_leader_epoch=self.random.choice([-1, self.epoch]),
            last_fetched_epoch=epoch,
            partition_max_bytes=self.random.choice([1, 150, 300, 1 << 20]),
        )
        topics = [FetchTopic(topic="t", partitions=[wanted])]
        isolation = self.random.randrange(2)
        self.compare(
            FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=topics), 12
        )

    def list(self) -> None:
        timestamp = self.random.choice([-1, -2, -3, START_MS + self.random.randrange(10_000)])
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[part])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        if timestamp == -3:  # of deleted records a log may tell, as long as their segment is there
            whole, tiered = (self.ask(node, request, 8) for node in self.nodes)
            answers = [each.topics[0].partitions[0] for each in (whole, tiered)]
            assert answers[0] == answers[1] or answers[0].offset < self.whole.start_offset
            return
        self.compare(request, 8)

    def epochs(self) -> None:
        part = OffsetForLeaderPartition(
            partition=0, leader_epoch=self.random.randint(0, self.epoch + 1)
        )
        topics = [OffsetForLeaderTopic(topic="t", partitions=[part])]
        self.compare(OffsetForLeaderEpochRequest(replica_id=-2, topics=topics), 4)


ACTS = ("append", "append", "in_transaction", "in_transaction", "decide", "elect", "tier", "delete",
        "forget")  # fmt: skip
QUESTIONS = ("fetch", "fetch", "fetch", "list", "epochs")


@pytest.mark.parametrize("seed", range(60))
def test_an_older_part_elsewhere_changes_no_answer(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        getattr(world, world.random.choice(ACTS))()
        for _ in range(4):
            getattr(world, world.random.choice(QUESTIONS))()
    for offset in range(world.tiered.start_offset, world.tiered.local_start_offset):
        world.fetch(offset, epoch=-1)
        assert world.remote_answers


def test_what_no_part_holds_is_out_of_range() -> None:
    world = World(1)
    for _ in range(20):
        world.append()
    world.tier()
    assert 0 < world.tiered.local_start_offset <= world.tail.end_offset
    world.tiered.older = NO_TAIL
    with pytest.raises(ApiError) as caught:
        world.tiered.read(0, max_bytes=1, upto=END, at_least_one=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
