"""R5, R15: logs with offsets left out, as compaction leaves them, open and read like any other."""

from __future__ import annotations

import pytest
from tests.core.log.support import END, KEY, NOW_MS, TOPIC_ID, append, batch, new_log, sync, tags

from anabranch.core.log.log import Log
from anabranch.core.log.segment import LOG
from anabranch.core.wire.batch import walk


def leave_out(log: Log, doomed: set[int]) -> None:
    """Remove the batches with these base offsets from the files; indexes go, as after a crash."""
    for segment in log.segments:
        held = segment.file.read_blocking(0, segment.size)
        kept = [
            bytes(held[at : at + header.size_bytes])
            for at, header in walk(memoryview(held))
            if header.base_offset not in doomed
        ]
        log.files.write_atomic(segment.stem + LOG, b"".join(kept), sync=True)
        log.files.remove(segment.stem + ".index")


def reopened(log: Log, recovery_point: int) -> Log:
    """As after a crash, with the policy that the log has."""
    return Log.open(
        log.files,
        log.folder,
        KEY,
        TOPIC_ID,
        log.config,
        now_ms=NOW_MS,
        recovery_point=recovery_point,
    )


@pytest.fixture
def three_segments() -> Log:
    log = new_log(segment_bytes=800, cleanup_policy=("delete",))
    for tag in range(12):
        append(log, batch(2, 40, tag=tag))
    sync(log)
    assert [segment.base_offset for segment in log.segments] == [0, 8, 16]
    return log


def test_batches_left_out_within_a_file_are_no_torn_end(three_segments: Log) -> None:
    """The policy may have changed to delete since the log was compacted."""
    leave_out(three_segments, {2, 4, 10, 18})
    log = reopened(three_segments, 0)
    assert (log.recovery.cut_bytes, log.end_offset) == (0, 24)
    assert tags(log) == [0, 3, 4, 6, 7, 8, 10, 11]
    assert tags(log, 1) == tags(log)


def test_batches_left_out_between_synced_segments_are_no_hole(three_segments: Log) -> None:
    leave_out(three_segments, {4, 6, 8, 14})
    log = reopened(three_segments, 16)
    assert (log.recovery.cut_bytes, log.end_offset) == (0, 24)
    assert tags(log) == [0, 1, 5, 6, 8, 9, 10, 11]


def test_a_segment_with_nothing_left_is_read_over(three_segments: Log) -> None:
    leave_out(three_segments, {8, 10, 12, 14})
    log = reopened(three_segments, 16)
    assert tags(log, 1) == [0, 1, 2, 3, 8, 9, 10, 11]
    held = log.read(9, max_bytes=1, upto=END, at_least_one=True)
    assert next(iter(walk(memoryview(held))))[1].base_offset == 16


def test_the_end_of_a_file_that_was_never_synced_is_still_missed(three_segments: Log) -> None:
    """A hole between segments that no sync covered: what follows it is not served."""
    leave_out(three_segments, {14})
    log = reopened(three_segments, 10)
    assert log.end_offset == 14
    assert tags(log) == [0, 1, 2, 3, 4, 5, 6]


def test_a_log_is_cut_at_an_offset_that_was_left_out(three_segments: Log) -> None:
    leave_out(three_segments, {10, 12})
    log = reopened(three_segments, 24)
    assert log.truncate_to(13) == 10
    assert log.read(10, max_bytes=1, upto=END, at_least_one=True) == b""
    assert append(log, batch(1, 40, tag=50)) == 10
    assert tags(reopened(log, 10)) == [0, 1, 2, 3, 4, 50]


def test_an_offset_that_was_left_out_is_found_by_time(three_segments: Log) -> None:
    leave_out(three_segments, {0, 2, 8})
    log = reopened(three_segments, 24)
    found = log.offset_for_timestamp(NOW_MS, upto=END)
    assert found is not None
    assert found.offset == 4
