"""Drafts of checkpoints: what is written in a thread never promises more than there is by then."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, sync, tags
from tests.core.log.test_logs import CONFIG, begun, opened, written_high_watermarks

from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicPartition
from anabranch.sim.disk import SimDisk


def test_a_draft_promises_no_more_than_a_log_that_was_cut_meanwhile() -> None:
    """Although the checkpoint promised less than there is now."""
    files = MemoryFiles()
    folder, log = begun(files)
    sync(log)
    drafts = [
        folder.draft_synced(KEY),
        folder.draft_clean(KEY, 9),
        folder.draft_high_watermarks({KEY: 9}),
    ]
    for draft in drafts:
        folder.write_draft(draft)
    log.truncate_to(3)
    assert [folder.adopt(draft) for draft in drafts] == [False, False, False]
    again, log = opened(files)
    assert (again.promised(KEY), again.clean_points, again.high_watermarks) == (0, {}, {})
    assert tags(log) == [0]


def test_a_draft_of_high_watermarks_is_kept_beside_a_cut_that_leaves_them_alone() -> None:
    files = MemoryFiles()
    folder, log = begun(files)
    draft = folder.draft_high_watermarks({KEY: 6})
    folder.write_draft(draft)
    log.truncate_to(6)
    assert folder.adopt(draft)
    assert not folder.adopt(draft)
    assert folder.high_watermarks == written_high_watermarks(files) == {KEY: 6}
    log.truncate_to(3)
    assert written_high_watermarks(files) == {KEY: 3}


def test_a_draft_yields_to_what_was_written_after_it_was_begun() -> None:
    files = MemoryFiles()
    folder, _ = begun(files)
    draft = folder.draft_high_watermarks({KEY: 3})
    folder.write_draft(draft)
    folder.checkpoint_high_watermarks({KEY: 6})
    assert not folder.adopt(draft)
    assert written_high_watermarks(files) == {KEY: 6}
    draft = folder.draft_high_watermarks({KEY: 3})
    folder.give_up(draft)
    assert not folder.adopt(draft)


def test_a_draft_is_not_kept_when_a_log_was_deleted_meanwhile() -> None:
    """It may have been gathered from what was there before."""
    files = MemoryFiles()
    folder, _ = begun(files)
    offsets: dict[TopicPartition, int] = {}
    draft = folder.draft_high_watermarks(offsets)
    folder.delete_log(KEY, unique="1f", now_ms=NOW_MS)
    offsets[KEY] = 9
    folder.write_draft(draft)
    assert not folder.adopt(draft)


def test_a_draft_says_nothing_of_a_log_that_begins_anew_meanwhile() -> None:
    files = MemoryFiles()
    folder = LogFolder(files, "data")
    draft = folder.draft_high_watermarks({KEY: 9})
    folder.write_draft(draft)
    folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert not folder.adopt(draft)
    assert opened(files)[0].high_watermarks == {}


def test_a_draft_promises_no_more_than_a_log_that_is_opened_meanwhile_has() -> None:
    files = MemoryFiles()
    begun(files)
    folder = LogFolder(files, "data")
    draft = folder.draft_high_watermarks({KEY: 10})
    folder.write_draft(draft)
    folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    assert not folder.adopt(draft)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_brings_back_no_mark_of_a_deleted_log(seed: int) -> None:
    """The folder was not synced since another checkpoint took the place of the one with it."""
    disk = SimDisk(Random(seed))
    disk.make_dirs("data")
    disk.sync_dir("data")
    folder = LogFolder(disk, "data")
    folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    folder.checkpoint_high_watermarks({KEY: 9})
    folder.delete_log(KEY, unique="1f", now_ms=NOW_MS)
    draft = folder.draft_high_watermarks({})
    folder.write_draft(draft)
    assert folder.adopt(draft)
    folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    disk.cut_power()
    assert LogFolder(disk, "data").high_watermarks == {}
