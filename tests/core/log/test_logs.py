"""A folder of logs: checkpoints never promise more than is there; the marker tells a crash from a
stop."""

from __future__ import annotations

import pytest
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, batch, note_clean, sync, tags

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.checkpoints import (
    CLEAN_POINTS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    InvalidCheckpoint,
    MetaProperties,
    format_epochs,
    format_meta_properties,
    format_offsets,
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
)
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicPartition

CONFIG = LogConfig(file_delete_delay_ms=100)


def begun(files: MemoryFiles, count: int = 3) -> tuple[LogFolder, Log]:
    folder = LogFolder(files, "data")
    log = folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for tag in range(count):
        append(log, batch(tag=tag))
    return folder, log


def opened(files: MemoryFiles) -> tuple[LogFolder, Log]:
    folder = LogFolder(files, "data")
    assert [tuple(one) for one in folder.partitions()] == [(KEY, TOPIC_ID)]
    return folder, folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)


def test_a_clean_stop_is_marked_and_the_mark_is_used_once() -> None:
    files = MemoryFiles()
    folder, _ = begun(files)
    folder.close(broker_epoch=41)
    again, log = opened(files)
    assert (again.clean, again.broker_epoch) == (True, 41)
    assert (log.flushed_offset, log.recovery.scanned_bytes) == (9, 0)
    assert not LogFolder(files, "data").clean


def test_a_folder_with_a_fault_is_not_marked_clean() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    folder.fail(StorageFault("no"))
    with pytest.raises(StorageFault):
        append(log, batch())
    folder.close()
    assert not LogFolder(files, "data").clean


def test_a_truncation_lowers_the_checkpoint_first() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    folder.checkpoint()
    assert parse_offsets(files.read("data/recovery-point-offset-checkpoint")) == {KEY: 9}
    log.truncate_to(4)
    assert parse_offsets(files.read("data/recovery-point-offset-checkpoint")) == {KEY: 3}
    assert tags(opened(files)[1]) == [0]


def shortened(files: MemoryFiles, partitions: int) -> dict[TopicPartition, int]:
    """Logs of three batches on a disk that a power cut took the last two of, and their ends."""
    folder = LogFolder(files, "data")
    places = [TopicPartition("flights", index) for index in range(partitions)]
    for place in places:
        log = folder.create_log(place, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        append(log, batch(tag=0))
        sync(log)
        size = log.active.size
        append(log, batch(tag=1))
        append(log, batch(tag=2))
        del files.contents[log.active.file.path][size:]
    folder.checkpoint()
    folder.checkpoint_high_watermarks(dict.fromkeys(places, 9))
    return dict.fromkeys(places, 3)


def written_high_watermarks(files: MemoryFiles) -> dict[TopicPartition, int]:
    return parse_offsets(files.read("data/replication-offset-checkpoint"))


def test_before_a_log_that_lost_its_end_grows_what_was_committed_of_it_is_lowered() -> None:
    files = MemoryFiles()
    shortened(files, 1)
    folder, _ = opened(files)
    assert written_high_watermarks(files) == {KEY: 3}
    assert folder.high_watermarks == {KEY: 3}


def test_one_write_lowers_the_marks_of_all_logs_that_lost_their_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    ends = shortened(files, 5)
    writes: list[str] = []
    write_atomic = files.write_atomic

    def counted(path: str, encoded: bytes, *, sync: bool) -> None:
        writes.append(path)
        write_atomic(path, encoded, sync=sync)

    monkeypatch.setattr(files, "write_atomic", counted)
    folder = LogFolder(files, "data")
    for place in ends:
        folder.open_log(place, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        assert written_high_watermarks(files) == ends
    assert writes == ["data/replication-offset-checkpoint"]


def test_a_log_that_is_whole_keeps_what_was_committed_of_it_beside_one_that_is_not() -> None:
    files = MemoryFiles()
    ends = shortened(files, 2)
    first, second = ends
    before = LogFolder(files, "data")
    append(before.open_log(second, TOPIC_ID, CONFIG, now_ms=NOW_MS), batch(tag=1))
    before.checkpoint_high_watermarks({first: 9, second: 6})
    folder = LogFolder(files, "data")
    folder.open_log(first, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    folder.open_log(second, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert folder.high_watermarks == {first: 3, second: 6}
    folder.checkpoint_high_watermarks(folder.high_watermarks)
    assert written_high_watermarks(files) == {first: 3, second: 6}


def test_a_truncation_lowers_what_was_committed_first() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    folder.checkpoint_high_watermarks({KEY: 6})
    log.truncate_to(7)
    assert written_high_watermarks(files) == {KEY: 6}
    log.truncate_to(4)
    assert written_high_watermarks(files) == {KEY: 3}


def test_a_new_partition_under_an_old_name_owes_nothing_to_the_old_one() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    log.delete_records_before(3)
    folder.checkpoint()
    folder.checkpoint_high_watermarks({KEY: 9})
    folder.delete_log(KEY, unique="1f", now_ms=NOW_MS)
    assert files.is_dir("data/flights-0.1f-delete")
    folder.remove_deleted(NOW_MS + 99)
    assert files.is_dir("data/flights-0.1f-delete")
    folder.remove_deleted(NOW_MS + 100)
    assert not files.is_dir("data/flights-0.1f-delete")
    new = folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    append(new, batch(tag=7))
    again, log = opened(files)
    assert tags(log) == [7]
    assert again.high_watermarks == {}


def test_partitions_that_come_and_go_leave_nothing_in_memory_nor_in_checkpoints() -> None:
    """Compacted ones, too, of which a checkpoint of its own tells."""
    files = MemoryFiles()
    folder, _ = begun(files)
    for number in range(100):
        place = TopicPartition(f"gone-{number}", 0)
        log = folder.create_log(place, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        append(log, batch())
        sync(log)
        folder.checkpoint()
        folder.checkpoint_high_watermarks({place: 3, KEY: 9})
        if number % 3 == 0:
            note_clean(folder, place, 3)
        folder.delete_log(place, unique=str(number), now_ms=NOW_MS)
        folder.checkpoint()
        folder.checkpoint_high_watermarks({KEY: 9})
        folder.remove_deleted(NOW_MS + CONFIG.file_delete_delay_ms)
    kept = vars(folder).values()
    known = [place for each in kept if isinstance(each, dict | set) for place in each]
    assert sum(isinstance(place, TopicPartition) and place != KEY for place in known) <= 2
    assert sorted(name for name in files.list("data") if "gone" in name) == []
    assert sum(held.count(b"gone-") for held in files.contents.values()) <= 1


def test_the_promise_of_an_offline_partition_stands() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    folder.checkpoint()
    files.contents[log.active.file.path][70] ^= 1
    folder = LogFolder(files, "data")
    for _ in range(2):
        with pytest.raises(CorruptLog):
            folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        folder.checkpoint()
    assert parse_offsets(files.read("data/recovery-point-offset-checkpoint")) == {KEY: 9}


def test_the_log_start_survives() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    log.delete_records_before(4)
    folder.checkpoint()
    assert opened(files)[1].start_offset == 4


def test_meta_properties() -> None:
    meta = MetaProperties("cluster", 3, "directory")
    assert parse_meta_properties(format_meta_properties(meta)) == meta
    with pytest.raises(InvalidCheckpoint):
        parse_meta_properties(b"version=0\n")


@pytest.mark.parametrize(
    "text", ["0", "\n", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\nx\n", "0\n1\na b 1\n", "\xff"]
)
def test_a_damaged_checkpoint_says_what_is_wrong(text: str) -> None:
    with pytest.raises(InvalidCheckpoint):
        parse_offsets(text.encode("latin-1"))


@pytest.mark.parametrize("clean", [True, False])
def test_empty_checkpoints_as_kafka_creates_them_say_nothing(clean: bool) -> None:
    """Kafka creates them all empty, and writes the first ones after seconds or a minute."""
    files = MemoryFiles()
    folder, log = begun(files)
    if clean:
        folder.close()
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEAN_POINTS):
        files.write_atomic(f"data/{name}", b"", sync=True)
    files.write_atomic(f"{log.folder}/{LEADER_EPOCHS}", b"", sync=True)
    folder, found = opened(files)
    assert (folder.high_watermarks, folder.clean_points) == ({}, {})
    assert folder.promised(KEY) == 0
    assert (found.start_offset, found.end_offset) == (0, 9)
    assert found.epochs.entries == log.epochs.entries, "found in the batches"
    assert (found.recovery.scanned_bytes == 0) == clean, "nothing says that it was ever synced"


def test_checkpoints_are_kafkas_text() -> None:
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 10): 0}
    assert format_offsets(offsets) == b"0\n2\na 10 0\nb 1 5\n"
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert parse_offsets(b"") == {}
    assert format_epochs([(0, 0), (3, 7)]) == b"0\n2\n0 0\n3 7\n"
    assert parse_epochs(b"0\n2\n0 0\n3 7\n") == [(0, 0), (3, 7)]
    with pytest.raises(InvalidCheckpoint):
        parse_epochs(b"0\n2\n3 7\n0 0\n")


def test_a_clean_stop_syncs_what_is_new_and_the_shared_names_once() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    folder.create_log(TopicPartition("other", 0), TOPIC_ID, CONFIG, now_ms=NOW_MS)
    found = list(folder.closing_rounds())
    (due,) = [one for one in found if one is not None]
    assert (len(found), due.log, due.end_offset) == (2, log, 9)
    assert folder.path not in [getattr(one, "path", None) for one in due.files]
    for one in due.files:
        one.sync()
    log.synced(due.end_offset)
    assert list(folder.closing_rounds()) == [None, None]


def test_folders_and_files_of_others_are_left_alone() -> None:
    """A stray name that only looks like ours must not keep a node from starting."""
    files = MemoryFiles()
    folder = LogFolder(files, "data")
    folder.create_log(KEY, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    folder.logs[KEY].append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    folder.close()
    files.make_dirs("data/notes-²")
    files.make_dirs("data/notes-٣")
    for name in ("backup.snapshot", "notes.log", "²²²²²²²²²²²²²²²²²²²².log"):
        files.write_atomic(f"data/{KEY}/{name}", b"", sync=False)
    for clean in (True, False):
        again = LogFolder(files, "data")
        again.clean = clean
        assert [each.topic_partition for each in again.partitions()] == [KEY]
        log = again.open_log(KEY, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        assert log.end_offset == 3
    log.roll(NOW_MS)
    log.truncate_to(1)
    assert log.end_offset == 0


def test_a_draft_of_a_checkpoint_takes_its_place_when_nothing_changed_meanwhile() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    for draft in (folder.draft_synced(KEY), folder.draft_clean(KEY, 6)):
        folder.write_draft(draft)
        assert folder.adopt(draft)
    assert (folder.promised(KEY), folder.clean_points) == (9, {KEY: 6})
    again, _ = opened(files)
    assert (again.promised(KEY), again.clean_points) == (9, {KEY: 6})


def test_a_draft_that_was_overtaken_promises_nothing() -> None:
    """The log was cut while the draft was written: it would promise what is gone."""
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    folder.checkpoint()
    note_clean(folder, KEY, 9)
    drafts = [folder.draft_synced(KEY), folder.draft_clean(KEY, 9)]
    for draft in drafts:
        folder.write_draft(draft)
    log.truncate_to(3)
    assert [folder.adopt(draft) for draft in drafts] == [False, False]
    again, _ = opened(files)
    assert (again.promised(KEY), again.clean_points) == (3, {KEY: 3})
