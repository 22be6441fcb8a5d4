"""The file of leader epochs: when it is written, and that no crash finds it short of an epoch.

Not here: what epochs say of a log that was compacted (`test_histories`).
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.core.log.support import FOLDER, NOW_MS, append, batch, new_log, reopen, sync
from tests.core.log.test_crashes import World

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, InvalidCheckpoint, parse_epochs
from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.wire.batch import patch

TABLE = f"{FOLDER}/{LEADER_EPOCHS}"


class CountedFiles(MemoryFiles):
    """Files that count what waits for a disk: whole files that are written, and names."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.calls[f"write {path}"] += 1
        super().write_atomic(path, data, sync=sync)

    def sync_dir(self, path: str) -> None:
        self.calls[f"sync {path}"] += 1
        super().sync_dir(path)

    def sync_path(self, path: str) -> None:
        self.calls[f"sync {path}"] += 1
        super().sync_path(path)


@pytest.fixture
def files() -> CountedFiles:
    return CountedFiles()


def begun(files: CountedFiles, **settings: int) -> Log:
    """A log with records, of which nothing is counted yet."""
    log = new_log(files, **settings)
    append(log, batch())
    sync(log)
    files.calls.clear()
    return log


def test_the_first_records_of_an_epoch_touch_no_file_but_the_segment(files: CountedFiles) -> None:
    """A node that is elected for thousands of partitions appends to all of them in one step."""
    log = begun(files)
    for epoch in range(1, 5):
        log.assign_leader_epoch(epoch)
        append(log, batch(), leader_epoch=epoch)
        sync(log)
    assert log.epochs.latest == 4
    assert [call for call in files.calls if LEADER_EPOCHS in call or call.startswith("write")] == []


def test_copied_records_of_an_epoch_touch_no_file_but_the_segment(files: CountedFiles) -> None:
    leader, log = new_log(), begun(files)
    for epoch in range(4):
        append(leader, batch(), leader_epoch=epoch)
    held = leader.read(3, max_bytes=1 << 20, upto=12, at_least_one=True)
    log.append_as_follower(bytes(held), now_ms=NOW_MS)
    assert log.epochs.entries == leader.epochs.entries
    assert not files.calls


@pytest.mark.parametrize("has_records", [False, True])
def test_a_leader_that_follows_and_has_nothing_to_cut_writes_nothing(
    files: CountedFiles, has_records: bool
) -> None:
    """Whatever its epoch was: one that nothing was written in is in no file."""
    log = begun(files)
    log.assign_leader_epoch(3)
    if has_records:
        append(log, batch(), leader_epoch=3)
    assert log.truncate_to(log.end_offset) == log.end_offset
    assert log.epochs.latest == (3 if has_records else 0)
    assert not files.calls


def test_a_killed_copy_that_begins_in_a_gap_knows_whose_the_gap_is(files: CountedFiles) -> None:
    """Compaction left out what the leader's log began with, in the epoch of its first batch."""
    log = new_log(files)
    log.truncate_fully(100)
    records = batch()
    patch(memoryview(records), 0, 130, 5)
    log.append_as_follower(records, now_ms=NOW_MS)
    assert log.epochs.entries == reopen(log).epochs.entries == [(5, 100)]
    log.delete_records_before(110)
    again = reopen(log, log_start_offset=110)
    assert log.epochs.entries == again.epochs.entries == [(5, 110)]


def test_a_killed_log_that_was_emptied_knows_whose_a_gap_behind_it_is() -> None:
    log = new_log(retention_ms=1000)
    append(log, batch())
    sync(log)
    log.apply_retention(NOW_MS + 60_000, log.end_offset)
    records = batch()
    patch(memoryview(records), 0, 30, 5)
    log.append_as_follower(records, now_ms=NOW_MS)
    assert log.epochs.entries == reopen(log).epochs.entries == [(5, 3)]


def test_an_epoch_that_nothing_was_written_in_is_in_no_file(files: CountedFiles) -> None:
    log = begun(files)
    log.roll(NOW_MS)
    append(log, batch(), leader_epoch=1)
    log.roll(NOW_MS)
    log.assign_leader_epoch(2)
    sync(log)
    assert parse_epochs(files.read(TABLE)) == [(0, 0), (1, 3)]
    append(log, batch(), leader_epoch=2)
    again = reopen(log)
    assert again.epochs.entries == [(0, 0), (1, 3), (2, 6)]


def test_a_clean_stop_leaves_every_epoch_in_the_file(files: CountedFiles) -> None:
    """Who opens the folder next, Kafka or this program, reads no batch to find them."""
    log = begun(files)
    append(log, batch(), leader_epoch=1)
    sync(log)
    log = reopen(log, clean=True)
    assert parse_epochs(files.read(TABLE)) == [(0, 0), (1, 3)]
    append(log, batch(), leader_epoch=2)
    log = reopen(log, clean=True)
    assert parse_epochs(files.read(TABLE)) == [(0, 0), (1, 3), (2, 6)]
    files.remove(TABLE)
    log = reopen(log, clean=True)
    reopen(log, clean=True)
    assert parse_epochs(files.read(TABLE)) == [(0, 0), (1, 3), (2, 6)]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("is_retention", [False, True])
def test_a_log_whose_records_were_all_deleted_knows_its_last_epoch(
    *, is_retention: bool, clean: bool
) -> None:
    """Without it, a follower takes its start for one of a history that is gone, and begins anew."""
    log = new_log(retention_ms=1000)
    append(log, batch())
    append(log, batch(), leader_epoch=5)
    sync(log)
    if is_retention:
        log.apply_retention(NOW_MS + 60_000, log.end_offset)
    else:
        log.delete_records_before(log.end_offset)
    for _ in range(2):
        log = reopen(log, clean=clean, log_start_offset=log.start_offset)
        assert log.epochs.entries == [(5, 6)]


def test_a_table_of_which_the_end_is_missing_is_refused() -> None:
    """A power cut may leave the begin of a file that was not synced, also of its last number."""
    text = b"0\n2\n1 0\n5 100\n"
    for length in range(len(text)):
        with pytest.raises(InvalidCheckpoint):
            parse_epochs(text[:length])


@pytest.mark.parametrize("seed", range(200))
def test_no_crash_finds_the_file_short_of_an_epoch(seed: int) -> None:
    """Disks fill up now and then; segments are small, and each has some epochs."""
    world = World(seed)
    weights = {
        world.append: 30,
        world.sync: 8,
        world.checkpoint: 8,
        world.truncate: 2,
        world.retire: 1,
        world.stop: 1,
    }
    for step in world.random.choices(list(weights), list(weights.values()), k=80):
        if world.random.random() < 0.3:
            world.disk.free = world.random.choice([1 << 60, world.random.randint(0, 4000)])
        if world.log.fault is not None or world.random.random() < 0.05:
            world.restart(power=world.random.random() < 0.5)
        step()
    world.restart(power=True)


def test_a_round_that_has_no_room_for_the_table_is_not_begun() -> None:
    """What it would promise is not there; the log stays in service."""
    world = World(1)
    for _ in range(30):
        world.append()
    assert len(world.log.segments) > 2
    world.disk.free = 0
    with pytest.raises(StorageFault):
        world.log.sync_target()
    assert (world.log.fault, world.log.flushed_offset) == (None, 0)
    world.disk.free = 1 << 60
    world.sync()
    assert world.log.flushed_offset == world.log.end_offset
    world.checkpoint()
    world.restart(power=True)
