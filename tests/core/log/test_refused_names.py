"""A full disk may have no room for a longer name: what a log drops does not come back to it."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from tests.core.log.support import NOW_MS, append, batch, new_log, read_batches, reopen, sync

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.sim.disk import SimDisk

SEGMENTS = 6
MOST_NAMES = 20


class Refusing(SimDisk):
    """A disk that has no room for one of the new names, the one of that number."""

    def __init__(self) -> None:
        super().__init__(Random(0))
        self.refused_in = -1

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".deleted"):
            self.refused_in -= 1
            if self.refused_in == 0:
                raise DiskFull(f"{target}: no space left on purpose")
        super().rename(source, target)


def expire(log):
    log.config = LogConfig(segment_bytes=300, retention_bytes=2 * log.segments[0].size)
    log.apply_retention(NOW_MS, log.end_offset)


def cut(log):
    log.truncate_to(log.segments[2].base_offset + 1)


def cut_fully(log):
    log.truncate_fully(100)


@pytest.mark.parametrize("drop", [expire, cut, cut_fully])
@pytest.mark.parametrize("refused", range(1, MOST_NAMES))
def test_a_log_is_the_same_when_it_is_opened_again(drop, refused):
    disk = Refusing()
    log = new_log(disk, segment_bytes=300)
    for number in range(SEGMENTS):
        append(log, batch(tag=number))
    assert len(log.segments) == SEGMENTS
    sync(log)
    disk.refused_in = refused
    with contextlib.suppress(DiskFull):  # a broker would go on
        drop(log)
    for number in range(SEGMENTS):
        append(log, batch(tag=100 + number), leader_epoch=1)
    log.apply_retention(NOW_MS, log.end_offset)
    before = read_batches(log)
    start, end = log.start_offset, log.end_offset
    again = reopen(log, log_start_offset=start)
    assert read_batches(again) == before
    assert (again.start_offset, again.end_offset) == (start, end)
