"""What a read_committed reader sees of a log after any history, beside a naive model of it.

A world is one partition to which producers write in transactions that end either way, while it is
rolled, cut, closed, crashed, and shortened at its start. The model keeps all that was written in a
list. Three things are asked of the log after each step: where such a reader stops, what it sees
before that when it drops what it is told was aborted, and which transactions are open. A follower
that has copied as much must know the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import NamedTuple

import pytest
from tests.core.log.support import END, NOW_MS, append, batch, marker, new_log, reopen, sync

from anabranch.core.log.files import DiskFull
from anabranch.core.log.log import Log
from anabranch.core.log.segment import SNAPSHOT
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import end_marker

SEEDS = 100
LOSING_SEEDS = 20
ROOMLESS_SEEDS = (*range(60), 211)
STEPS = 60
PRODUCERS = (1, 2, 3)


class Entry(NamedTuple):
    """A batch as it was written; `committed` is None but for markers."""

    first: int
    last: int
    producer: int = -1
    epoch: int = 0
    committed: bool | None = None


class World:
    """The log, and all that is in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log: Log = new_log(
            segment_bytes=self.random.choice([700, 5000]),
            index_interval_bytes=100,
            file_delete_delay_ms=0,
        )
        self.follower: Log = new_log(segment_bytes=1500, file_delete_delay_ms=0)
        self.entries: list[Entry] = []
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.high_watermark = 0
        self.was_opened = False
        self.loses_markers = self.lacks_room = False

    # What happens.

    def write(self) -> None:
        """Records of a transaction, or of none."""
        producer = self.random.choice((-1, *PRODUCERS))
        count = self.random.randint(1, 3)
        if producer < 0:
            first = append(self.log, batch(count, size_bytes=10))
            self.entries.append(Entry(first, first + count - 1))
            return
        if self.loses_markers:  # in an unclean election: the producer goes on in a newer epoch
            self.epochs[producer] += self.random.random() < 0.3
        self.write_in_transaction(producer, count)

    def write_in_transaction(self, producer: int, count: int) -> None:
        epoch = self.epochs[producer]
        sequence = self.log.producers.next_sequence(producer, epoch)
        records = batch(
            count,
            size_bytes=10,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        first = append(self.log, records)
        self.entries.append(Entry(first, first + count - 1, producer, epoch))

    def end(self) -> None:
        """A marker, also where nothing is open; one in two raises the epoch."""
        producer, committed = self.random.choice(PRODUCERS), self.random.random() < 0.5
        self.epochs[producer] += self.random.random() < 0.5
        self.end_transaction(producer, committed=committed)

    def end_transaction(self, producer: int, *, committed: bool) -> None:
        epoch = self.epochs[producer]
        records = marker(producer, committed=committed, producer_epoch=epoch)
        written = self.log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, client=False)
        self.entries.append(
            Entry(written.first_offset, written.first_offset, producer, epoch, committed)
        )

    def replicate(self) -> None:
        """The high watermark moves."""
        ends = [each.last + 1 for each in self.entries if each.last >= self.high_watermark]
        self.high_watermark = self.random.choice([self.high_watermark, *ends])

    def roll(self) -> None:
        if self.log.active is not None and self.log.active.size:
            files = self.log.files
            if self.lacks_room:
                write_atomic = partial(write_if_there_is_room, self.random, files.write_atomic)
                files.write_atomic = write_atomic
            self.log.roll(NOW_MS)
            vars(files).pop("write_atomic", None)

    def sync(self) -> None:
        sync(self.log)

    def truncate(self) -> None:
        """As a follower whose leader has less."""
        least = self.log.start_offset
        if self.random.random() < 0.8:  # nearly always a few batches
            least = max(least, self.log.end_offset - 6)
        self.cut(self.random.randint(least, self.log.end_offset))

    def cut(self, offset: int) -> None:
        end = self.log.truncate_to(offset)
        self.follower.truncate_to(end)
        self.entries = [each for each in self.entries if each.last < end]
        if end == self.log.start_offset and not len(self.log.producers):
            self.entries.clear()  # no record is left: the log begins anew
        self.high_watermark = min(self.high_watermark, end)
        for producer in PRODUCERS:
            mine = [each.epoch for each in self.entries if each.producer == producer]
            self.epochs[producer] = max(mine, default=0)

    def shorten(self) -> None:
        """Records are deleted at the start, and segments with them."""
        offset = self.random.randint(self.log.start_offset, self.high_watermark)
        self.log.delete_records_before(offset)
        self.log.apply_retention(NOW_MS, self.high_watermark)
        self.log.remove_deleted_files(NOW_MS)

    def copy(self) -> None:
        """A follower catches up."""
        follower = self.follower
        if follower.end_offset < self.log.start_offset:
            follower.truncate_fully(self.log.start_offset)
        while follower.end_offset < self.log.end_offset:
            offset = follower.end_offset
            records = self.log.read(offset, max_bytes=400, upto=END, at_least_one=True)
            if next(walk(records))[1].base_offset < offset:  # it began within a batch
                break
            follower.append_as_follower(records, now_ms=NOW_MS)

    def restart(self) -> None:
        """In order, or not; what was written is in the files either way."""
        self.begin_again(is_clean=self.random.random() < 0.5)

    def begin_again(self, *, is_clean: bool) -> None:
        self.log = reopen(self.log, clean=is_clean, log_start_offset=self.log.start_offset)
        self.log.recall_unreplicated(self.high_watermark)
        self.was_opened = True

    def step(self) -> None:
        moves = (self.write,) * 6 + (self.end,) * 3 + (self.replicate,) * 3
        moves += (self.copy, self.copy)
        moves += (self.roll, self.sync, self.truncate, self.shorten, self.restart)
        if self.log.end_offset:
            self.random.choice(moves)()
        else:
            self.write()
        self.high_watermark = max(self.high_watermark, self.log.start_offset)

    # What is so.

    def transactions(self) -> tuple[dict[int, int], list[tuple[int, int, Entry]]]:
        """First offsets of the open ones by producer, and (producer, first offset, marker)."""
        opened: dict[int, int] = {}
        ended = []
        for each in self.entries:
            if each.producer < 0:
                continue
            if each.committed is None:
                opened.setdefault(each.producer, each.first)
            elif each.producer in opened:
                ended.append((each.producer, opened.pop(each.producer), each))
        return opened, ended

    def check(self) -> None:
        opened, ended = self.transactions()
        assert self.log.producers.open_transactions == opened
        firsts = [
            *opened.values(),
            *(first for _, first, end in ended if end.first >= self.high_watermark),
        ]
        stable = self.log.last_stable_offset(self.high_watermark)
        expected = min((max(first, self.log.start_offset) for first in firsts), default=END)
        expected = min(expected, self.high_watermark)
        if self.was_opened and self.log.segments and self.log.segments[0].base_offset:
            assert stable <= expected  # what a marker ended may have been deleted, or nothing
        else:
            assert stable == expected
        if stable > self.log.start_offset:
            for first in (
                self.log.start_offset,
                self.random.randrange(self.log.start_offset, stable),
            ):
                assert self.seen(first, stable) == self.committed(first, stable, ended)

        if self.follower.end_offset == self.log.end_offset:
            self.check_follower(opened)

    def check_follower(self, opened: dict[int, int]) -> None:
        """It began where the leader's log began then: what it never had it cannot know."""
        if not self.follower.segments:
            return
        begin, end = self.follower.segments[0].base_offset, self.log.end_offset
        known = self.follower.producers.open_transactions
        assert known.keys() == opened.keys() or begin > 0
        for producer, first in known.items():
            assert first == max(first, opened[producer]) and first >= begin
        if begin == 0:
            assert known == opened
            least = max(self.log.start_offset, self.log.segments[0].base_offset)
            told = [log.aborted_transactions(least, end) for log in (self.log, self.follower)]
            assert sorted(told[0]) == sorted(told[1])

    def committed(self, first: int, upto: int, ended: list[tuple[int, int, Entry]]) -> list[int]:
        """First offsets of the batches that such a reader should see."""
        aborted = [
            (producer, begin, end.first) for producer, begin, end in ended if not end.committed
        ]
        return [
            each.first
            for each in self.entries
            if each.committed is None
            and first <= each.last
            and each.first < upto
            and not any(
                producer == each.producer and begin <= each.first < end
                for producer, begin, end in aborted
            )
        ]

    def seen(self, first: int, upto: int) -> list[int]:
        """The same as a client finds it: by the list that comes with each fetch."""
        seen, offset = [], first
        while offset < upto:
            batches = self.log.read(offset, max_bytes=300, upto=upto, at_least_one=True)
            assert batches, f"nothing at {offset}"
            headers = [header for _, header in walk(batches)]
            told = sorted(
                self.log.aborted_transactions(offset, headers[-1].next_offset),
                key=lambda each: each.first_offset,
            )
            aborted: set[int] = set()
            for position, header in walk(batches):
                while told and told[0].first_offset <= header.last_offset:
                    aborted.add(told.pop(0).producer_id)
                if header.is_control:
                    decision = end_marker(batches, position)
                    assert decision is not None
                    if not decision.committed:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    seen.append(header.base_offset)
                offset = header.next_offset
        return seen


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_reader_sees_what_was_committed_and_stops_at_what_is_open(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()


def write_if_there_is_room(
    random: Random, write_atomic: Callable[..., None], path: str, encoded: bytes, *, sync: bool
) -> None:
    """Some indexes find none. A snapshot does: only it tells of transactions whose first records
    are deleted."""
    if not path.endswith(SNAPSHOT) and random.random() < 0.5:
        raise DiskFull(f"{path}: no room")
    write_atomic(path, encoded, sync=sync)


@pytest.mark.parametrize("seed", ROOMLESS_SEEDS)
def test_the_same_where_some_indexes_cannot_be_written(seed: int) -> None:
    """What lies there may be of bytes that were cut since."""
    world = World(seed)
    world.lacks_room = True
    for _ in range(STEPS):
        world.step()
        world.check()


@pytest.mark.parametrize("seed", range(LOSING_SEEDS))
def test_the_same_where_markers_were_lost(seed: int) -> None:
    world = World(seed)
    world.loses_markers = True
    for _ in range(STEPS):
        world.step()
        world.check()


def test_an_index_on_the_disk_is_not_of_what_was_cut() -> None:
    """It may have been written before a cut, and processes may end in between. All ways in which a
    log goes on from within a transaction that it knew to be aborted."""
    ends, processes, rolls = "-ak", "-cu", "-r"
    ways = product(ends, ends, *[processes] * 3, rolls, rolls)
    for first, second, ended, again, last, rolled, closed in ways:
        world = World(0)
        for step in f"w{first}{rolled}{ended}Tw{second}{again}{closed}w{last}t":
            play(world, step)
            world.check()


def play(world: World, step: str) -> None:
    """One step; all of the log is replicated at once."""
    match step:
        case "w":
            world.write_in_transaction(PRODUCERS[0], 1)
        case "a" | "k":
            world.end_transaction(PRODUCERS[0], committed=step == "k")
        case "r":
            world.roll()
        case "c" | "u":
            world.begin_again(is_clean=step == "c")
        case "T":
            world.cut(1)
        case "t":
            world.cut(world.entries[-1].first)
    world.high_watermark = world.log.end_offset
