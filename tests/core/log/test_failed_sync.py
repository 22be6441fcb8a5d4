"""R5: what a sync failed to store is stored by the next process, or was never promised.

The kernel takes the pages of a failed sync for written: memory has them, and syncs of the next
process say nothing. Not here: any order of faults and crashes (`test_crashes`).
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.core.log.support import (
    FOLDER,
    KEY,
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    new_log,
    reopen,
    sync,
    tags,
)
from tests.core.log.test_crashes import CONFIG, World

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import PARTITION_METADATA
from anabranch.core.log.failed_sync import MARK, leave_mark, sync_at_once
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFile, MemoryFiles
from anabranch.core.log.scan import CHUNK_BYTES
from anabranch.core.log.segment import Segment

MARKED = f"{FOLDER}/{MARK}"


def fails(world: World, file: int) -> bool:
    """Begin a round of which one file is to fail; whether it did."""
    target = world.log.sync_target()
    assert target is not None
    try:
        for number, one in enumerate(target[1]):
            world.disk.fail_in = 1 if number == file else -1
            one.sync()
    except StorageFault:
        return True
    return False


@pytest.mark.parametrize("file", range(12))
@pytest.mark.parametrize("kills", [1, 2])
@pytest.mark.parametrize("before", [0, 6])
def test_what_the_next_process_syncs_is_there_after_a_power_cut(
    file: int, kills: int, before: int
) -> None:
    """Whichever file of the round failed, of one segment or of several."""
    for seed in range(12):
        world = World(100 * seed + file)
        for _ in range(before):
            world.append()
        if before:
            world.sync()
            world.checkpoint()
        for _ in range(1 + 2 * before):
            world.append()
        if not fails(world, file):
            continue
        for _ in range(kills):
            world.folder = LogFolder(world.disk, "data")
            world.log = world.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        world.append()
        held, epochs = tags(world.log), world.log.epochs.entries
        sync(world.log)
        assert MARK not in world.disk.list(FOLDER)
        world.folder.checkpoint()
        world.disk.cut_power()
        folder = LogFolder(world.disk, "data")
        assert [each.topic_id for each in folder.partitions()] == [TOPIC_ID]
        log = folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        assert (tags(log), log.epochs.entries) == (held, epochs)


def test_a_cut_that_could_not_be_synced_is_no_promise_either() -> None:
    """Truncation syncs outside of rounds: what it leaves of unsynced batches is unsure, too."""
    for seed in range(60):
        world = World(seed)
        for _ in range(3):
            world.append()
        world.disk.fail_in = 1 + seed % 12
        with suppress(StorageFault):
            world.log.truncate_to(world.appended[-1][0])
        world.disk.fail_in = -1
        world.folder = LogFolder(world.disk, "data")
        world.log = world.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        sync(world.log)
        held = tags(world.log)
        world.folder.checkpoint()
        world.disk.cut_power()
        log = LogFolder(world.disk, "data").open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        assert tags(log) == held


def test_a_cut_that_could_not_be_synced_leaves_the_mark() -> None:
    world = World(7)
    for _ in range(3):
        world.append()
    log = world.log
    with pytest.raises(StorageFault):
        sync_at_once(log, refusing(log).file)
    assert MARK in world.disk.list(FOLDER)
    assert log.fault is not None


def refusing(log: Log) -> Segment:
    """The active segment, on a disk that syncs nothing."""
    assert log.active is not None
    log.files.fail_in = 1  # type: ignore[attr-defined]
    return log.active


class Written(MemoryFiles):
    """Files that note what is written to segments."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, int]] = []

    def open(self, path: str, *, create: bool = False, write: bool = True) -> MemoryFile:
        return WrittenFile(self, path, create=create and write)


class WrittenFile(MemoryFile):
    """A file that notes what is written to it."""

    def write(self, position, buffers):
        self._files.written.append((position, sum(map(len, buffers))))
        super().write(position, buffers)


@pytest.mark.parametrize("synced", [0, 1, 3, 5])
def test_only_what_lies_behind_the_recovery_point_is_written_again_piece_by_piece(
    synced: int,
) -> None:
    files = Written()
    log = new_log(files)
    for tag in range(5):
        append(log, batch(2, 400_000, tag=tag))
        if tag + 1 == synced:
            sync(log)
    safe = sum(size for _, size in files.written[:synced])
    content = bytes(files.contents[log.segments[0].file.path])
    files.written.clear()
    reopen(log)
    assert files.written == []
    files.make_empty(MARKED)
    again = reopen(log)
    assert files.contents[log.segments[0].file.path] == content
    assert tags(again) == list(range(5))
    assert min((start for start, _ in files.written), default=len(content)) == safe
    assert max((start + size for start, size in files.written), default=safe) == len(content)
    assert all(size <= CHUNK_BYTES for _, size in files.written)


def test_the_mark_goes_with_a_round_in_which_all_was_stored_and_not_before() -> None:
    files = MemoryFiles()
    log = new_log(files)
    append(log, batch())
    target = log.sync_target()
    assert target is not None
    leave_mark(log)  # as for a sync that hangs
    for one in target[1][:2]:
        one.sync()
    assert MARKED in files.contents
    log = reopen(log)
    assert MARKED in files.contents, "nothing has been synced yet"
    append(log, batch())
    log.truncate_to(1)
    assert MARKED in files.contents
    append(log, batch())
    sync(log)
    assert MARKED not in files.contents


def test_the_mark_stays_when_the_log_failed_beside_the_round() -> None:
    files = MemoryFiles()
    log = new_log(files)
    append(log, batch())
    target = log.sync_target()
    assert target is not None
    leave_mark(log)
    log.fail(StorageFault("a cut was not stored"))
    for one in target[1]:
        one.sync()
    assert MARKED in files.contents


def test_a_log_that_was_closed_in_order_needs_no_mark() -> None:
    files = MemoryFiles()
    log = new_log(files)
    append(log, batch())
    log.close(clean=True)
    files.make_empty(MARKED)
    Log.open(
        files, FOLDER, KEY, TOPIC_ID, log.config,
        now_ms=NOW_MS, clean=True, recovery_point=log.end_offset,
    )  # fmt: skip
    assert MARKED not in files.contents


def test_a_folder_without_whose_it_is_is_opened_with_a_mark_too() -> None:
    files = MemoryFiles()
    log = new_log(files)
    append(log, batch())
    files.remove(f"{FOLDER}/{PARTITION_METADATA}")
    files.make_empty(MARKED)
    assert tags(reopen(log)) == [0]
