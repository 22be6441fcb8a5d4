"""What a log knows of producers outlives the records that told it, and any power cut after them.

A log loses its oldest segments to retention, to DeleteRecords, or because another store has them.
Nothing but a snapshot tells then what they said of sequences and of transactions.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from tests.core.log.support import END, KEY, NOW_MS, TOPIC_ID, append, batch, marker, sync

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.segment import SNAPSHOT
from anabranch.sim.disk import SimDisk

ACTS = ("send",) * 4 + ("end",) * 2 + ("roll", "sync", "checkpoint", "shorten", "cut")
PRODUCERS = (7, 8, 9)
STEPS = 60


class RoomlessDisk(SimDisk):
    """A disk that may have no room for snapshots."""

    is_full = False

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        if self.is_full and path.endswith(SNAPSHOT):
            raise DiskFull(f"{path}: no space left on purpose")
        super().write_atomic(path, data, sync=sync)


class World:
    """One log on a bad disk, and what it knew of producers at each of its ends."""

    def __init__(self, seed: int, *, has_remote: bool, lacks_room: bool) -> None:
        self.random, self.lacks_room = Random(seed), lacks_room
        self.disk = RoomlessDisk(self.random)
        self.config = LogConfig(
            segment_bytes=self.random.choice((300, 900)),
            has_remote=has_remote,
            file_delete_delay_ms=self.random.choice((0, 60_000)),
        )
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.create_log(KEY, TOPIC_ID, self.config, now_ms=NOW_MS)
        self.disk.stored_names = dict(self.disk.names)
        self.known = {0: known(self.log)}
        self.is_over = False

    def send(self) -> None:
        """A record of a transaction, or of none."""
        producer = self.random.choice(PRODUCERS)
        sequence = self.log.producers.next_sequence(producer, 0)
        is_open = producer in self.log.producers.open_transactions
        append(
            self.log,
            batch(
                1,
                size_bytes=10,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=is_open or self.random.random() < 0.5,
            ),
        )

    def end(self) -> None:
        for producer in list(self.log.producers.open_transactions)[:1]:
            ended = marker(producer, committed=self.random.random() < 0.5)
            self.log.append_as_leader(ended, leader_epoch=0, now_ms=NOW_MS, client=False)

    def roll(self) -> None:
        if self.log.active is not None and self.log.active.size:
            self.disk.is_full = self.lacks_room and self.random.random() < 0.5
            self.log.roll(NOW_MS)
            self.disk.is_full = False

    def sync(self) -> None:
        sync(self.log)

    def checkpoint(self) -> None:
        self.folder.checkpoint()

    def shorten(self) -> None:
        """Its oldest segments go."""
        log, end = self.log, self.log.end_offset
        if self.config.has_remote and self.random.random() < 0.7:
            log.drop_local(self.random.randint(log.local_start_offset, end), NOW_MS, end)
        else:
            log.delete_records_before(self.random.randint(log.start_offset, end))
            log.apply_retention(NOW_MS, end)
        log.remove_deleted_files(NOW_MS)

    def cut(self) -> None:
        """The power goes, and the log is opened again. Where all that is left lies before its
        start, it begins there without records, and what it might know was never synced."""
        flushed = self.log.flushed_offset
        self.disk.cut_power()
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.open_log(KEY, TOPIC_ID, self.config, now_ms=NOW_MS)
        self.is_over = not self.log.size_bytes and self.log.end_offset > flushed
        assert self.is_over or known(self.log) == self.known[self.log.end_offset]

    def step(self) -> None:
        getattr(self, self.random.choice(ACTS))()
        self.known[self.log.end_offset] = known(self.log)


def known(log: Log) -> list[tuple[int, int, int]]:
    return sorted(
        (each.producer_id, each.last_sequence, each.transaction_first_offset)
        for each in log.producers
    )


@pytest.mark.parametrize("has_remote", [False, True])
@pytest.mark.parametrize("lacks_room", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_takes_nothing_that_is_known_of_producers(
    seed: int, has_remote: bool, lacks_room: bool
) -> None:
    world = World(seed, has_remote=has_remote, lacks_room=lacks_room)
    for _ in range(STEPS):
        with suppress(DiskFull):
            world.step()
        if world.is_over:
            return
    world.cut()


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_that_begins_within_a_transaction_knows_that_it_was_aborted(seed: int) -> None:
    """The local log may begin between the records of a transaction and the marker that ends it."""
    world = World(seed, has_remote=True, lacks_room=False)
    for _ in range(STEPS):
        getattr(world, world.random.choice(("send", "send", "end", "roll")))()
    world.sync()
    world.checkpoint()
    log, end = world.log, world.log.end_offset
    world.known[end] = known(log)
    told = {first: aborted(log, first) for first in range(end)}
    log.drop_local(world.random.randint(1, end), NOW_MS, end)
    copies = LogFolder(MemoryFiles(), "copies")
    copy = copies.create_log(KEY, TOPIC_ID, world.config, now_ms=NOW_MS)
    copy.truncate_fully(log.local_start_offset, 0, log.local_beginning())
    while copy.end_offset < end:
        records = log.read(copy.end_offset, max_bytes=400, upto=END, at_least_one=True)
        copy.append_as_follower(records, now_ms=NOW_MS)
    for first in range(log.local_start_offset, end):
        assert aborted(log, first) == aborted(copy, first) == told[first]
    assert known(log) == known(copy)
    world.cut()
    assert world.log.end_offset == end
    for first in range(world.log.local_start_offset, end):
        assert aborted(world.log, first) == told[first]


def aborted(log: Log, first: int) -> list[tuple[int, int]]:
    found = log.aborted_transactions(first, log.end_offset)
    return sorted((each.producer_id, each.first_offset) for each in found)
