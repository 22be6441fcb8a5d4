"""A closed segment whose indexes are missing or wrong: they are made apart from who may not wait."""

from __future__ import annotations

import pytest
from tests.core.log.support import END, NOW_MS, append, batch, new_log, patiently, reopen

from anabranch.core.errors import CorruptLog
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.log.segment import LOG, OFFSETS, TIMES, Segment

SEGMENTS, BATCHES = 3, 40
ASKS = {
    "a read from the middle": lambda log: bytes(
        log.read(60, max_bytes=300, upto=END, at_least_one=True)
    ),
    "a look-up by time": lambda log: log.offset_for_timestamp(NOW_MS + 1_400, upto=END),
    "the newest time": lambda log: log.max_timestamp_offset(upto=END),
    "retention": lambda log: log.apply_retention(NOW_MS, END),
}


def closed(*harmed: str) -> Log:
    """Closed segments of which these index files are wrong."""
    log = new_log(index_interval_bytes=200, retention_ms=86_400_000)
    for _ in range(SEGMENTS):
        for _ in range(BATCHES):
            append(log, batch(timestamp=NOW_MS + 10 * log.end_offset))
        log.roll(NOW_MS)
    again = reopen(log, clean=True)
    for segment in again.segments[:-1]:
        for suffix in harmed:
            again.files.contents[segment.stem + suffix] += b"torn"
    return again


def read_whole(*_arguments):
    raise AssertionError("a segment is read whole")


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("harmed", [(OFFSETS,), (TIMES,), (OFFSETS, TIMES)])
def test_who_may_not_wait_reads_no_segment_whole(monkeypatch, ask, harmed):
    expected, log = ask(closed()), closed(*harmed)
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "index_batches", read_whole)
        try:
            assert ask(log) == expected, "it needs no index"
        except ColdRead as cold:
            lost = cold
        else:
            return
    lost.warm()
    assert patiently(lambda: ask(log)) == expected
    monkeypatch.setattr(Segment, "index_batches", read_whole)
    assert ask(reopen(log, clean=True)) == expected, "the indexes were written"


def test_two_who_ask_at_once_are_both_answered():
    ask, log = ASKS["a look-up by time"], closed(OFFSETS)
    expected = ask(closed())
    lost = []
    for _ in range(2):
        with pytest.raises(ColdRead) as cold:
            ask(log)
        lost.append(cold.value)
    for each in lost:
        each.warm()
    assert patiently(lambda: ask(log)) == expected


def test_what_was_found_of_a_segment_that_was_cut_meanwhile_does_not_count():
    log = closed(OFFSETS)
    with pytest.raises(ColdRead) as lost:
        ASKS["a read from the middle"](log)
    lost.value.warm()
    log.truncate_to(30)
    append(log, batch(timestamp=NOW_MS + 9_000))
    log.roll(NOW_MS)
    found = patiently(lambda: log.read(30, max_bytes=1 << 20, upto=END, at_least_one=True))
    assert len(found) == len(batch())
    assert patiently(lambda: log.max_timestamp_offset(upto=END)).timestamp == NOW_MS + 9_002


def test_rot_that_is_met_takes_the_partition_offline():
    log = closed(OFFSETS)
    segment = log.segments[0]
    log.files.contents[segment.file.path][segment.size // 2 : segment.size] = bytes(
        segment.size - segment.size // 2
    )
    with pytest.raises(CorruptLog, match="The partition is offline"):
        patiently(lambda: ASKS["a read from the middle"](log))
    assert log.fault is not None


def test_a_segment_that_is_gone_is_asked_for_again():
    log = closed(OFFSETS)
    with pytest.raises(ColdRead) as lost:
        ASKS["a look-up by time"](log)
    log.delete_records_before(log.end_offset)
    patiently(lambda: log.apply_retention(NOW_MS, END))
    lost.value.warm()
    assert not log.files.exists(lost.value.segment.stem + LOG), "nor is it there again"
    assert ASKS["a look-up by time"](log) is None
