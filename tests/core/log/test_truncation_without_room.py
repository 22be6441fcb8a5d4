"""A log that is to be cut on a disk that is full: what the next process finds of it."""

from __future__ import annotations

import pytest
from tests.core.log.compacting import compact
from tests.core.log.support import (
    KEY,
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    note_clean,
    read_batches,
    sync,
)

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=260, min_cleanable_dirty_ratio=0.0)
COUNT = 12


class ShortOfRoom(MemoryFiles):
    """Refuses the write of a checkpoint of that name while it is full."""

    full = ""

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Refuse, or write."""
        if self.full and path.endswith(self.full):
            raise DiskFull(f"{path}: no space left on purpose", "data")
        super().write_atomic(path, data, sync=sync)


def compacted_folder() -> tuple[ShortOfRoom, LogFolder]:
    """A folder whose one log has holes between its segments, and every checkpoint names it."""
    files = ShortOfRoom()
    folder = LogFolder(files, "data")
    log = folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for number in range(COUNT):
        append(log, batch(count=1, tag=number))
    sync(log)
    note_clean(folder, KEY, compact(log, NOW_MS))
    append(log, batch(count=1, tag=COUNT))
    sync(log)
    folder.checkpoint_high_watermarks({KEY: log.end_offset})
    folder.checkpoint()
    assert len(log.segments) > 2
    return files, folder


@pytest.mark.parametrize("full", ["cleaner-offset-checkpoint", "replication-offset-checkpoint"])
@pytest.mark.parametrize("target", [0, 1])
def test_a_log_that_could_not_be_cut_is_whole_after_a_kill(full: str, target: int) -> None:
    files, folder = compacted_folder()
    before = read_batches(folder.logs[KEY])
    files.full = full
    with pytest.raises(DiskFull):
        folder.logs[KEY].truncate_to(target)
    files.full = ""
    again = LogFolder(files, "data")
    assert read_batches(again.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)) == before
