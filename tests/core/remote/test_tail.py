"""A tail of remote segments answers as the log that they were copied from.

The world of `test_composite` compares a node that has everything with one whose older part is
here: objects with Kafka's files, and facts.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.api.in_memory_node import START_MS
from tests.core.log.support import batch
from tests.core.partition.test_composite import ACTS, QUESTIONS, World

from anabranch.core.diskless.objects import ObjectMissing
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.indexes import OffsetIndex, encode_aborted
from anabranch.core.log.lookup import aborted_ranges, newest_timestamp
from anabranch.core.log.segment import LOG, OFFSETS, TIMES, TRANSACTIONS, offset_name
from anabranch.core.outcome import Cold
from anabranch.core.partition.bringers import apart
from anabranch.core.remote import cache as caches
from anabranch.core.remote.cache import PiecesOf, RemoteCache
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.tail import RemoteTail
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records

END = 2**62


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments have some hundred bytes: they take several pieces."""
    monkeypatch.setattr(caches, "PIECE_BYTES", 96)


class RemoteWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now_ms = 0
        self.objects: dict[str, bytes] = {}
        self.reads = 0
        self.segments: list[RemoteSegment] = []
        self.cache = RemoteCache(1 << 20, 1 << 16, lambda: self.now_ms)
        self.tail: Any = RemoteTail("cluster", self.cache)
        self.tiered.older = self.tail

    def lineage(self) -> Lineage:
        entries = tuple(EpochStart(*each) for each in self.tiered.log.epochs.entries)
        return Lineage(entries, self.epoch)

    def tier(self) -> None:
        """Copy some segments, now and then one of them twice, and drop what was copied."""
        log = self.whole.log
        for segment in log.segments[:-1]:
            end = log.end_of(segment)
            is_copied = any(each.start_offset == segment.base_offset for each in self.segments)
            if end <= self.whole.last_stable_offset and end > log.start_offset:
                if not is_copied or self.random.random() < 0.1:
                    self.copy(segment, end)
        self.tail.take(self.segments, self.lineage(), log.start_offset)
        tiered = self.tiered.log
        tiered.noted_start_offset = tiered.start_offset
        tiered.drop_local(self.tail.end_offset, START_MS, self.tiered.high_watermark)

    def copy(self, segment: Any, end: int) -> None:
        log, key = self.whole.log, LogKey(self.whole.topic_id, 0)
        aborted = aborted_ranges(log, segment)
        epochs = [
            EpochStart(epoch, max(start, segment.base_offset))
            for (epoch, start), following in zip(
                log.epochs.entries, [*log.epochs.entries[1:], (0, END)], strict=True
            )
            if start < end and following[1] > segment.base_offset
        ]
        copied = RemoteSegment(
            SegmentId(self.random.randbytes(16)), key, segment.base_offset, end,
            newest_timestamp(log, segment), tuple(epochs), segment.size, 1, self.epoch,
            bool(aborted), SegmentState.COPY_SEGMENT_FINISHED,
        )  # fmt: skip
        self.segments.append(copied)
        files = {
            LOG: bytes(segment.file.read(0, segment.size)),
            OFFSETS: log.offset_index(segment).encode(),
            TIMES: log.time_index(segment).encode(),
            TRANSACTIONS: encode_aborted(aborted),
        }
        folder = segment_folder("cluster", key, copied.segment_id)
        for suffix, data in files.items():
            self.objects[folder + offset_name(segment.base_offset, suffix)] = data

    def forget(self) -> None:
        super().forget()
        self.tail.take(self.segments, self.lineage(), self.whole.log.start_offset)

    def bring(self, ask: Any) -> None:
        self.reads += 1
        held = self.objects.get(ask.object_key)
        if held is None:
            self.cache.brought(ask, ObjectMissing(f"there is no object {ask.object_key}"))
        elif isinstance(ask, PiecesOf):
            assert all(position + length <= len(held) for position, length in ask.ranges)
            cut = [held[position : position + length] for position, length in ask.ranges]
            self.cache.brought(ask, cut)
        else:
            self.cache.brought(ask, [held])

    def ask(self, node: Any, message: Any, version: int) -> Any:
        outcome = node.send(message, version)
        for _ in range(60):
            if not isinstance(outcome, Cold):
                return outcome
            warmed, asked = apart(outcome.reads)
            assert not warmed
            self.remote_answers += 1
            for each in asked:
                self.bring(each.ask)
            outcome = outcome.poll(START_MS, False)
        raise AssertionError("it asks without an end")

    def patiently(self, call: Any) -> Any:
        for _ in range(60):
            try:
                return call()
            except caches.RemoteRead as read:
                self.bring(read.ask)
        raise AssertionError("it asks without an end")


@pytest.mark.parametrize("seed", range(60))
def test_remote_segments_answer_as_the_log_they_were_copied_from(seed: int) -> None:
    world = RemoteWorld(seed)
    for _ in range(60):
        getattr(world, world.random.choice(ACTS))()
        for _ in range(4):
            getattr(world, world.random.choice(QUESTIONS))()
        if world.random.random() < 0.1:  # a cache may be lost at any time
            world.cache.__init__(1 << 20, 1 << 16, lambda: world.now_ms)
    for offset in range(world.tiered.start_offset, world.tiered.local_start_offset):
        world.fetch(offset, epoch=-1)
        assert world.reads


def copied_world() -> RemoteWorld:
    world = RemoteWorld(3)
    for _ in range(30):
        world.append()
    world.tier()
    assert world.tiered.local_start_offset > 0
    return world


def read(world: RemoteWorld, offset: int, max_bytes: int = 150) -> bytes:
    how = {"max_bytes": max_bytes, "upto": END, "at_least_one": True}
    return bytes(world.patiently(lambda: world.tail.read(offset, **how)))


def test_a_read_ends_before_its_limit() -> None:
    world = copied_world()
    segment = world.segments[0]
    for upto in range(segment.start_offset + 1, segment.end_offset + 1):
        how = {"max_bytes": 1 << 20, "upto": upto, "at_least_one": True}
        held = bytes(world.patiently(lambda: world.tail.read(0, **how)))  # noqa: B023
        ends = [header.next_offset for _, header in walk(held)]
        assert all(each <= upto for each in ends)
        assert held == bytes(world.whole.log.read(0, **how))


def test_the_newest_record_that_is_not_deleted_is_told() -> None:
    """Also where that of its segment is deleted."""
    world = copied_world()
    end = world.tail.end_offset
    records = [
        (one.timestamp, -one.offset)
        for segment in world.whole.log.segments
        for content in [bytes(segment.file.read(0, segment.size))]
        for position, _ in walk(content)
        for one in decode_records(content, position)
    ]
    for start in range(end):
        world.tail.take(world.segments, world.lineage(), start)
        timestamp, negated = max(each for each in records if start <= -each[1] < end)
        found = world.patiently(lambda first=start: world.tail.max_timestamp_offset(first))
        assert found[:2] == (timestamp, -negated), start


def test_a_reader_that_goes_on_reads_no_byte_twice() -> None:
    world = copied_world()
    offset = world.segments[0].start_offset
    for segment in world.segments:
        while offset < segment.end_offset:
            read(world, offset)
            offset += 1
    size = sum(each.byte_size for each in world.segments)
    most = sum(-(-each.byte_size // 96) for each in world.segments) + len(world.segments)
    assert world.cache.held_bytes[0] >= size
    assert world.reads <= most


def test_a_reader_passes_over_what_compaction_took_of_the_end_of_segments() -> None:
    """Of a topic that was compacted before it had remote storage: only the end of a pass has a
    batch for certain, and a reader must neither wait at the hole nor miss what follows it."""
    world = copied_world()
    kept = []
    for at, segment in enumerate(world.segments):
        folder = segment_folder("cluster", segment.key, segment.segment_id)
        name = folder + offset_name(segment.start_offset, LOG)
        *batches, (position, _) = walk(world.objects[name])
        world.objects[name] = world.objects[name][:position]
        world.objects[folder + offset_name(segment.start_offset, OFFSETS)] = OffsetIndex().encode()
        world.segments[at] = segment._replace(byte_size=position)
        kept += [header.last_offset for _, header in batches]
    world.tail.take(list(world.segments), world.lineage(), 0)
    local = world.tiered.local_start_offset
    for offset in range(local):
        how = {"max_bytes": 1, "upto": END, "at_least_one": True}
        held = bytes(world.patiently(lambda: world.tiered.read(offset, **how)))  # noqa: B023
        (_, header), *_ = walk(held)
        expected = next((each for each in kept if each >= offset), None)
        assert header.base_offset == local if expected is None else header.last_offset == expected
        assert len(world.patiently(lambda: world.tiered.lend(offset, **how)))  # noqa: B023
    assert not read(world, local - 1), "the tail itself has nothing there"


@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_harmed_segment_is_refused_for_a_moment_and_takes_nothing_offline(harm: str) -> None:
    world = copied_world()
    segment = world.segments[0]
    folder = segment_folder("cluster", segment.key, segment.segment_id)
    key = folder + offset_name(segment.start_offset, LOG)
    held = world.objects[key]
    if harm == "missing":
        del world.objects[key]
    else:
        world.objects[key] = bytes(len(held)) if harm == "changed" else held[:61] + bytes(9999)
    with pytest.raises(ApiError) as caught:
        read(world, 0, max_bytes=1 << 20)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert key in str(caught.value)
    reads = world.reads
    with pytest.raises(ApiError):
        read(world, 0)
    assert world.reads == reads, "it is not asked for again at once"
    assert world.tiered.log.fault is None
    world.now_ms += caches.REFUSING_MS
    world.objects[key] = held
    assert read(world, 0)


def test_indexes_in_memory_are_bounded() -> None:
    world = copied_world()
    world.cache.__init__(1 << 20, 40, lambda: 0)
    for segment in world.segments:
        world.patiently(lambda: world.tail.offset_for_timestamp(segment.max_timestamp, 0))  # noqa: B023
        assert world.cache.held_bytes[1] <= 60


def finished(start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        SegmentId(bytes([start, end]) * 8), LogKey(bytes(16), 0), start, end, 1,
        tuple(EpochStart(*each) for each in epochs), 100, 1, epochs[-1][0], False,
        SegmentState.COPY_SEGMENT_FINISHED,
    )  # fmt: skip


def tail_of(*segments: RemoteSegment, table: list[tuple[int, int]], log_start: int = 0) -> Any:
    tail = RemoteTail("cluster", RemoteCache(1 << 20, 1 << 16, lambda: 0))
    entries = tuple(EpochStart(*each) for each in table)
    tail.take(segments, Lineage(entries, entries[-1].epoch), log_start)
    return tail


def test_what_an_unclean_election_cut_does_not_answer() -> None:
    old, new = finished(0, 10, (1, 0)), finished(5, 12, (2, 5))
    for order in ((old, new), (new, old)):
        tail = tail_of(*order, table=[(1, 0), (2, 5)])
        assert [tail.epoch_of(each) for each in (0, 4, 5, 11, 12)] == [1, 1, 2, 2, -1]
        assert tail.end_offset == 12
        assert tail.end_offset_for_epoch(1) == (1, 5)


def test_a_tail_ends_at_the_first_gap_and_has_no_unfinished_segment() -> None:
    first, later = finished(0, 10, (1, 0)), finished(12, 20, (1, 12))
    assert tail_of(first, later, table=[(1, 0)]).end_offset == 10
    between = finished(10, 12, (1, 10))
    assert tail_of(first, between, later, table=[(1, 0)]).end_offset == 20
    started = between._replace(state=SegmentState.COPY_SEGMENT_STARTED)
    assert tail_of(first, started, later, table=[(1, 0)]).end_offset == 10
    assert tail_of(table=[(1, 0)]).end_offset == 0
    assert tail_of(first, later, table=[(1, 0)], log_start=10).end_offset == 20


def test_a_log_that_began_in_the_middle_takes_the_epochs_of_what_was_copied() -> None:
    segment = finished(0, 10, (1, 0), (3, 6))
    tail = tail_of(segment, table=[(3, 10)])
    assert [tail.epoch_of(each) for each in (0, 6, 9)] == [1, 3, 3]
    assert tail_of(segment, table=[(2, 10)]).end_offset == 6, "epoch 3 is of another history"


def test_a_record_of_a_cold_segment_takes_two_reads_and_then_one() -> None:
    """Also where a batch is as large as what is asked for: the one before it is read with it."""
    count, size = 8, 0
    log, index = b"", OffsetIndex()
    for number in range(count):
        made = batch(5, size_bytes=200)
        if number:  # Kafka has no entry for the first batch
            index.append(number * 5 + 4, len(log))
        log += (number * 5).to_bytes(8) + made[8:]
        size = len(made)
    for offset in range(1, 5 * count):
        cache = RemoteCache(1 << 20, 1 << 16, lambda: 0)
        tail = RemoteTail("cluster", cache)
        key = LogKey(TopicId(bytes(16)), 0)
        segment = RemoteSegment(
            SegmentId(bytes(16)), key, 0, 5 * count, 0, (EpochStart(0, 0),), len(log), 1, 0,
            state=SegmentState.COPY_SEGMENT_FINISHED,
        )  # fmt: skip
        tail.take([segment], Lineage((EpochStart(0, 0),), 0), 0)
        for most in (2, 0 if offset % 5 else 1):  # cold; then all of it is in memory, or the next
            reads = 0
            while True:
                try:
                    found = tail.read(offset, max_bytes=size, upto=END, at_least_one=True)
                    break
                except caches.RemoteRead as read:
                    reads += 1
                    held = [log] if isinstance(read.ask, PiecesOf) else [index.encode()]
                    if isinstance(read.ask, PiecesOf):
                        held = [log[at : at + length] for at, length in read.ask.ranges]
                    cache.brought(read.ask, held)
            assert reads <= most, offset
            assert len(found) == size
            first = int.from_bytes(found[:8])
            assert first <= offset < first + 5
