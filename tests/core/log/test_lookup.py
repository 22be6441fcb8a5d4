"""Answers by time: right, whatever the time indexes are like, and without reading all of them."""

from __future__ import annotations

import pytest
from tests.core.log.support import END, NOW_MS, append, batch, new_log, patiently, reopen

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
        lambda held: held.clear(),
        lambda held: held.__setitem__(slice(None), bytes(len(held))),
    ],
    ids=["preallocated", "beyond the segment", "torn", "emptied", "zeroed"],
)
def test_a_time_index_that_does_not_tell_the_newest_time_is_read_whole_or_made_again(harm) -> None:
    log = segmented(WholeFiles())
    expected = [log.offset_for_timestamp(NOW_MS + at, upto=END) for at in range(0, 1200, 7)]
    newest = log.max_timestamp_offset(upto=END)
    again = reopen(log, clean=True)
    for segment in again.segments[:-1]:
        harm(again.files.contents[segment.stem + TIMES])
    found = [
        patiently(lambda at=at: again.offset_for_timestamp(NOW_MS + at, upto=END))
        for at in range(0, 1200, 7)
    ]
    assert found == expected
    assert patiently(lambda: again.max_timestamp_offset(upto=END)) == newest


def test_the_newest_record_is_found_although_the_last_time_index_is_empty() -> None:
    log = segmented(MemoryFiles())
    append(log, batch(timestamp=NOW_MS + 5000))
    append(log, batch(timestamp=NOW_MS))
    expected = log.max_timestamp_offset(upto=END)
    assert expected.timestamp == NOW_MS + 5002
    log.close(clean=True)
    log.files.contents[log.segments[-1].stem + TIMES].clear()
    again = reopen(log, clean=True)
    assert again.max_timestamp_offset(upto=END) == expected
    found = again.offset_for_timestamp(NOW_MS + 4000, upto=END)
    assert found == (NOW_MS + 5000, expected.offset - 2, 0)


@pytest.mark.parametrize("timestamp", [-1, 0])
def test_an_empty_time_index_of_records_without_a_time_is_right(timestamp: int) -> None:
    """It is not made again each time it is loaded."""
    log = new_log(WholeFiles())
    append(log, batch(1, timestamp=timestamp))
    log.roll(NOW_MS)
    again = reopen(log, clean=True)
    assert not any(again.files.contents[again.segments[0].stem + TIMES])
    again.files.write_atomic = None  # nothing is written
    assert again.offset_for_timestamp(NOW_MS, upto=END) is None
