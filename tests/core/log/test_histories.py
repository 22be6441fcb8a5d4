"""R4, R15: what holds in a compacted log after any history, however often it crashed and was copied.

A world is one partition that is appended to in several epochs, rolled, compacted, cut, closed,
crashed, and moved to a new replica that copies it. Three things are asked of it again and again:
where each epoch ended, that a reader from any offset comes to the end, and that a copy is as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.core.log.compacting import compact
from tests.core.log.support import (
    KEY,
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    marker,
    new_log,
    note_clean,
    reopen,
    sync,
)
from tests.core.log.test_gaps import leave_out

from anabranch.core.log.checkpoints import LEADER_EPOCHS, format_epochs
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.scan import scan
from anabranch.core.log.segment import Segment
from anabranch.core.wire.batch import BatchHeader, walk
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.disk import SimDisk

CONFIG = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
)
STEPS = 40
KEYS = 4


class World:
    """One compacted partition on a bad disk, and where its epochs began."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = NOW_MS
        self.epoch = 0
        self.begun: list[tuple[int, int]] = []
        """(epoch, offset of its first record) of what was written and not cut."""
        self.begin()

    def begin(self) -> None:
        """A folder with an empty log."""
        self.disk = SimDisk(self.random)
        self.folder = LogFolder(self.disk, "data")
        self.log: Log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=self.now_ms)
        self.disk.sync_all()

    def append(self) -> None:
        """Some records; one in three deletes its key. At times they are a transaction's."""
        count, producer = self.random.randint(1, 3), self.random.choice([1, 2, 3])
        records = [
            Record(
                index,
                self.now_ms,
                b"k%d" % self.random.randrange(KEYS),
                None if self.random.random() < 0.3 else b"value",
            )
            for index in range(count)
        ]
        first = self.log.producers.next_sequence(producer, 0)
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
        is_transaction = producer == 3
        offset = append(
            self.log,
            build_batch(records, transactional=is_transaction, **(fields if producer > 1 else {})),
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )
        if not self.begun or self.begun[-1][0] != self.epoch:
            self.begun.append((self.epoch, offset))
        if is_transaction:
            end = marker(producer, committed=self.random.random() < 0.5)
            self.log.append_as_leader(
                end, leader_epoch=self.epoch, now_ms=self.now_ms, client=False
            )

    def elect(self) -> None:
        """A new leader, which may write nothing."""
        self.epoch += self.random.randint(1, 3)
        self.log.assign_leader_epoch(self.epoch)

    def roll(self) -> None:
        """What idle segments come to."""
        if self.log.active is not None and self.log.active.size:
            self.log.roll(self.now_ms)

    def sync(self) -> None:
        sync(self.log)
        self.folder.checkpoint()

    def compact(self) -> None:
        """A pass over what is dirty, as the cleaner has it: the recovery point is safe before."""
        self.sync()
        first_dirty = self.folder.clean_points.get(KEY, 0)
        map_bytes = self.random.choice([300, 1 << 20])
        upto = compact(self.log, self.now_ms, first_dirty, map_bytes=map_bytes)
        note_clean(self.folder, KEY, upto)
        self.log.remove_deleted_files(self.now_ms)

    def wait(self) -> None:
        """Until horizons are over."""
        self.now_ms += self.random.choice([10, 2000])

    def cut(self) -> None:
        """As a follower cuts its log."""
        self.log.truncate_to(
            self.random.randint(max(0, self.log.end_offset - 8), 1 + self.log.end_offset)
        )
        self.lost()

    def lost(self) -> None:
        """The log ends where it ends now; what is behind that was never written."""
        self.begun = [each for each in self.begun if each[1] < self.log.end_offset]

    def kill(self) -> None:
        """The process ends; what it wrote is there."""
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=self.now_ms)

    def cut_power(self) -> None:
        """Everything ends; what was synced is there."""
        flushed = self.log.flushed_offset
        self.disk.cut_power()
        self.kill()
        assert self.log.end_offset >= flushed
        self.lost()

    def stop(self) -> None:
        """An orderly stop."""
        self.folder.close()
        self.kill()

    def move(self) -> None:
        """A new replica copies the log, and the old one goes."""
        old = self.log
        self.begin()
        copy(old, self.log, self.random)
        assert self.log.end_offset == old.end_offset

    def check(self) -> None:
        """What is asked of every log, whatever it has been through."""
        log = self.log
        for epoch in range(self.epoch + 2):
            assert log.end_offset_for_epoch(epoch) == self.end_of(epoch), epoch
        for offset in range(log.start_offset, log.end_offset):
            assert next_offset(log, offset, 1 << 20) == log.end_offset, f"no end from {offset}"

    def end_of(self, epoch: int) -> tuple[int, int]:
        """What OffsetForLeaderEpoch has to answer."""
        begun = dict(self.begun)
        newest = max(begun, default=-1)
        if epoch > newest:
            # A leader that has written nothing yet has an epoch all the same.
            latest = self.log.epochs.latest
            return (-1, -1) if epoch > latest else self._unwritten(epoch, latest)
        later = [start for other, start in self.begun if other > epoch]
        known = max((other for other in begun if other <= epoch), default=epoch)
        return known, later[0] if later else self.log.end_offset

    def _unwritten(self, epoch: int, latest: int) -> tuple[int, int]:
        end_offset = self.log.end_offset
        return (latest if epoch == latest else max(dict(self.begun), default=epoch)), end_offset


def next_offset(log: Log, offset: int, max_bytes: int) -> int:
    """Where a reader that begins at an offset comes to a stop."""
    while offset < log.end_offset:
        held = log.read(offset, max_bytes=max_bytes, upto=log.end_offset, at_least_one=True)
        if not len(held):
            return offset
        for _, header in walk(memoryview(held)):
            offset = header.next_offset
    return offset


def copy(leader: Log, follower: Log, random: Random) -> None:
    """What a follower does until its leader has nothing more for it."""
    while True:
        at = follower.end_offset
        held = leader.read(at, max_bytes=random.choice([1, 500]), upto=1 << 62, at_least_one=True)
        if not len(held):
            return
        follower.append_as_follower(bytes(held), now_ms=NOW_MS)


WEIGHTS = {
    "append": 40,
    "elect": 8,
    "roll": 10,
    "sync": 6,
    "compact": 12,
    "wait": 6,
    "cut": 4,
    "kill": 6,
    "cut_power": 4,
    "stop": 4,
    "move": 4,
}


@pytest.mark.parametrize("seed", range(80))
def test_epochs_end_where_they_ended_and_every_reader_comes_to_the_end(seed: int) -> None:
    world = World(seed)
    steps = world.random.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=STEPS)
    for number, step in enumerate(steps):
        getattr(world, step)()
        try:
            world.check()
        except AssertionError as failed:
            raise AssertionError(f"after {steps[: number + 1]}: {failed}") from None


def left_by_kafka(world: World) -> None:
    """A pass of Kafka's cleaner took some batches, also those that an epoch began with."""
    world.sync()
    found = [base for base in bases(world.log.segments[:-1]) if world.random.random() < 0.5]
    leave_out(world.log, {*found} - {max(bases(world.log.segments), default=-1)})
    world.kill()


def bases(segments: list[Segment]) -> list[int]:
    return [
        header.base_offset
        for segment in segments
        for _, header in scan(segment.file, segment.size, check_crc=False)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_the_table_of_epochs_outlives_batches_that_kafka_took(seed: int) -> None:
    """The batches do not tell any more where an epoch began, and a killed process has the table."""
    world = World(seed)
    for step in world.random.choices(["append", "elect", "roll", "sync", "cut", "stop"], k=STEPS):
        getattr(world, step)()
        if step == "roll":
            left_by_kafka(world)
        for epoch in range(world.epoch + 2):
            assert world.log.end_offset_for_epoch(epoch) == world.end_of(epoch)


def ends_of_epochs(world: World) -> dict[int, tuple[int, int]]:
    return {epoch: world.log.end_offset_for_epoch(epoch) for epoch in range(world.epoch + 2)}


def headers(log: Log) -> Iterator[BatchHeader]:
    for segment in log.segments:
        for _, header in scan(segment.file, segment.size, check_crc=False):
            yield header


def first_epoch(log: Log) -> int:
    """The epoch of the first batch that is not deleted, -1 where there is none."""
    epochs = [each.leader_epoch for each in headers(log) if each.next_offset > log.start_offset]
    return epochs[0] if epochs else -1


DELETING = {
    "append": 12, "elect": 2, "roll": 4, "compact": 4, "delete": 4, "begin_copy": 4, "lose_table": 4
}  # fmt: skip


def delete(world: World) -> None:
    """Some of the oldest records, and the segments that this makes free."""
    start, end = world.log.start_offset, world.log.end_offset
    world.log.delete_records_before(world.random.randint(start, min(end, start + 8)))
    world.log.apply_retention(world.now_ms, end)
    world.log.remove_deleted_files(world.now_ms)
    world.folder.checkpoint()


def begin_copy(world: World) -> None:
    """A new replica copies what its leader has from its start on, and the old one goes."""
    old, start = world.log, world.log.start_offset
    world.begin()
    world.log.truncate_fully(start)
    held = old.read(start, max_bytes=1, upto=1 << 62, at_least_one=True)
    if len(held):
        world.log.truncate_fully(min(start, next(walk(memoryview(held)))[1].base_offset))
        world.log.append_as_follower(bytes(held), now_ms=world.now_ms)
    world.log.delete_records_before(start)
    copy(old, world.log, world.random)
    world.folder.checkpoint()


def lose_table(world: World) -> None:
    """The file with the epochs is lost while the process is down."""
    world.random.choice([world.stop, world.kill])()
    known, log = ends_of_epochs(world), world.log
    if world.random.random() < 0.5:
        world.folder.close()
    if world.disk.exists(f"{log.folder}/{LEADER_EPOCHS}"):
        world.disk.remove(f"{log.folder}/{LEADER_EPOCHS}")
    world.kill()
    rebuilt, log = ends_of_epochs(world), world.log
    for epoch, (_, end_offset) in rebuilt.items():
        if 0 <= first_epoch(log) <= epoch:
            assert rebuilt[epoch] == known[epoch], epoch
        assert end_offset <= max(known[epoch][1], log.start_offset), epoch


@pytest.mark.parametrize("seed", [*range(60), 2281, 6844, 12243])
def test_a_lost_table_of_epochs_keeps_no_more_of_a_replica_than_the_table(seed: int) -> None:
    """Where a log begins in a gap that compaction left, its batches alone do not tell whose that
    was. What was deleted moves no epoch's begin behind the log's start."""
    world = World(seed)
    world.elect()  # an older epoch that this log knows nothing of
    for step in world.random.choices(list(DELETING), weights=list(DELETING.values()), k=STEPS):
        own = {"delete": delete, "begin_copy": begin_copy, "lose_table": lose_table}.get(step)
        own(world) if own is not None else getattr(world, step)()


def test_a_lost_table_gives_a_gap_at_the_log_s_start_to_the_epoch_behind_it() -> None:
    log = new_log(cleanup_policy=("compact",))
    log.truncate_fully(5)
    copied = build_batch([Record(8, 1, b"k", b"v")], base_offset=8, leader_epoch=3)
    log.append_as_follower(copied, now_ms=0)
    log.delete_records_before(7)
    assert log.epochs.entries == [(3, 7)]
    log.files.remove(f"{log.folder}/{LEADER_EPOCHS}")
    again = reopen(log, recovery_point=0, log_start_offset=7)
    assert again.epochs.entries == [(3, 7)]


def test_a_table_older_than_the_log_gives_way_to_the_batches() -> None:
    """The disk had no room for it when the log was cut; then epoch 3 began anew, and earlier."""
    log = new_log()
    append(log, batch(10), leader_epoch=1)
    append(log, batch(5), leader_epoch=3)
    table = format_epochs(log.epochs.entries)
    log.truncate_to(0)
    append(log, batch(4), leader_epoch=1)
    append(log, batch(5), leader_epoch=3)
    append(log, batch(1), leader_epoch=4)
    log.files.write_atomic(f"{log.folder}/{LEADER_EPOCHS}", table, sync=True)
    assert reopen(log, recovery_point=0).epochs.entries == [(1, 0), (3, 4), (4, 9)]


def test_what_lies_before_the_log_s_start_does_not_contradict_a_table_that_was_cut_there() -> None:
    """Its batches are read again after a kill, and the table says more than they do."""
    log = copied((3, 4), (7, 4), (13, 10))
    log.delete_records_before(8)
    table = [(4, 8), (6, 9), (10, 12)]  # of 6, and where 10 began, Kafka's cleaner left nothing
    log.files.write_atomic(f"{log.folder}/{LEADER_EPOCHS}", format_epochs(table), sync=True)
    assert reopen(log, recovery_point=0, log_start_offset=8).epochs.entries == table


def test_a_lost_table_gives_a_gap_at_the_log_s_start_to_the_batch_before_it() -> None:
    log = copied((3, 4), (7, 4), (11, 6))
    log.delete_records_before(8)
    log.files.remove(f"{log.folder}/{LEADER_EPOCHS}")
    again = reopen(log, recovery_point=0, log_start_offset=8)
    assert again.epochs.entries == log.epochs.entries == [(4, 8), (6, 11)]


def copied(*batches: tuple[int, int]) -> Log:
    """A copy of a compacted log: (offset, epoch) of each record."""
    log = new_log(cleanup_policy=("compact",))
    log.truncate_fully(batches[0][0])
    for offset, epoch in batches:
        record = Record(offset, 1, b"k", b"v")
        held = build_batch([record], base_offset=offset, leader_epoch=epoch)
        log.append_as_follower(held, now_ms=0)
    return log
