"""Answers by time: right, whatever the time indexes are like, and without reading all of them."""

from __future__ import annotations

import pytest
from tests.core.log.support import END, NOW_MS, append, batch, new_log, reopen

from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.segment import OFFSETS, TIMES

SEGMENTS = 12
ENTRY_BYTES = 12


class WholeFiles(MemoryFiles):
    """Files that note which index files are read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.read_whole: list[str] = []

    def read(self, path: str) -> bytes:
        if path.endswith((OFFSETS, TIMES)):
            self.read_whole.append(path)
        return super().read(path)


def segmented(files: MemoryFiles) -> Log:
    """A log of some segments that was just opened, with many entries in each of its indexes."""
    log = new_log(files, index_interval_bytes=100)
    for number in range(SEGMENTS):
        for at in range(10):
            append(log, batch(timestamp=NOW_MS + 100 * number + 10 * at))
        log.roll(NOW_MS)
    return reopen(log, clean=True)


@pytest.mark.parametrize("number", [0, 5, SEGMENTS - 1])
def test_a_search_by_time_reads_the_indexes_of_one_segment(number: int) -> None:
    """A log may have thousands of segments, and nobody is answered while their indexes are read."""
    files = WholeFiles()
    log = segmented(files)
    files.read_whole.clear()
    found = log.offset_for_timestamp(NOW_MS + 100 * number + 50, upto=END)
    assert (found.timestamp, found.offset) == (NOW_MS + 100 * number + 50, 30 * number + 15)
    assert files.read_whole == [log.segments[number].stem + suffix for suffix in (OFFSETS, TIMES)]


def test_the_newest_record_is_found_with_the_indexes_of_one_segment() -> None:
    files = WholeFiles()
    log = segmented(files)
    files.read_whole.clear()
    found = log.max_timestamp_offset(upto=END)
    assert (found.timestamp, found.offset) == (NOW_MS + 100 * SEGMENTS - 8, 30 * SEGMENTS - 1)
    last = log.segments[SEGMENTS - 1].stem
    assert files.read_whole == [last + suffix for suffix in (OFFSETS, TIMES)]


@pytest.mark.parametrize(
    "harm",
    [
        lambda held: held.extend(bytes(5 * ENTRY_BYTES)),  # as Kafka preallocates it
        lambda held: held.extend(b"\x7f" * ENTRY_BYTES),  # an offset that the segment has not
        lambda held: held.extend(b"torn"),
    ],
    ids=["preallocated", "beyond the segment", "torn"],
)
def test_a_time_index_whose_end_does_not_tell_is_read_whole(harm) -> None:
    log = segmented(WholeFiles())
    expected = [log.offset_for_timestamp(NOW_MS + at, upto=END) for at in range(0, 1200, 7)]
    again = reopen(log, clean=True)
    for segment in again.segments[:-1]:
        harm(again.files.contents[segment.stem + TIMES])
    assert [again.offset_for_timestamp(NOW_MS + at, upto=END) for at in range(0, 1200, 7)] == (
        expected
    )
