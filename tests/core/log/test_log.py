"""Append, read, roll, look up, shorten: one log in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.log.support import (
    END,
    FOLDER,
    KEY,
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    marker,
    new_log,
    read_batches,
    reopen,
    sync,
    tags,
)

from anabranch.core.errors import ApiError, CorruptLog, ErrorCode
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.segment import IndexCache, Segment
from anabranch.core.log.segment_roll import age_limit_ms
from anabranch.core.wire.batch import patch, read_header, walk

SMALL = {"segment_bytes": 3000, "index_interval_bytes": 200}


def filled(count: int = 60, **config: object) -> Log:
    """A log of `count` batches of three records, ten milliseconds apart."""
    log = new_log(**{**SMALL, **config})
    for tag in range(count):
        append(log, batch(timestamp=NOW_MS + 10 * tag, tag=tag), leader_epoch=tag // 20)
    return log


def test_offsets_follow_each_other_and_epochs_are_stamped() -> None:
    log = filled(5)
    assert [read_header(one).base_offset for one in read_batches(log)] == [0, 3, 6, 9, 12]
    result = log.append_as_leader(batch(2), leader_epoch=4, now_ms=NOW_MS)
    assert result == (15, 16, -1, 0, False)
    assert read_header(read_batches(log)[-1]).leader_epoch == 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 700)), min_size=1, max_size=40),
    st.integers(0, 200),
    st.integers(1, 5000),
    st.integers(0, 200),
)
def test_a_read_begins_with_the_batch_that_holds_the_offset_and_ends_below_upto(
    shapes: list[tuple[int, int]], offset: int, max_bytes: int, upto: int
) -> None:
    log = new_log(segment_bytes=5000, index_interval_bytes=300)
    for count, size_bytes in shapes:
        append(log, batch(count, size_bytes))
    offset %= log.end_offset
    for at_least_one in (True, False):
        held = log.read(offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one)
        headers = [header for _, header in walk(held)]
        assert sum(header.size_bytes for header in headers) == len(held)
        if not headers:
            continue
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert headers[-1].last_offset < upto
        assert len(held) <= max_bytes or (at_least_one and len(headers) == 1)
    whole = log.read(offset, max_bytes=1 << 30, upto=END, at_least_one=False)
    assert len(whole) > 0


def test_readers_of_every_offset_and_size_see_the_same_batches() -> None:
    log = filled()
    for max_bytes in (1, 250, 1000, 1 << 20):
        assert tags(log, max_bytes) == list(range(60))


def test_offsets_outside_of_the_log_are_refused() -> None:
    log = filled(3)
    assert log.read(9, max_bytes=10, upto=END, at_least_one=True) == b""
    for offset in (-1, 10):
        with pytest.raises(ApiError) as refusal:
            log.read(offset, max_bytes=10, upto=END, at_least_one=True)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_segments_roll_by_size_age_and_index() -> None:
    assert len(filled().segments) > 3
    aged = new_log(segment_ms=1000)
    append(aged, batch(timestamp=NOW_MS))
    append(aged, batch(timestamp=NOW_MS + 500))
    assert len(aged.segments) == 1
    append(aged, batch(timestamp=NOW_MS + 1500))
    assert len(aged.segments) == 2
    assert not aged.roll_if_due(NOW_MS + 900)
    assert aged.roll_if_due(NOW_MS + 1001)
    full = new_log(segment_index_bytes=40, index_interval_bytes=1)
    for _ in range(10):
        append(full, batch())
    assert len(full.segments) > 2


def test_jitter_takes_a_part_of_the_age_that_differs_by_segment_and_is_less_than_all() -> None:
    """With more jitter than age, every batch would begin a segment."""
    log = new_log(segment_ms=1000, segment_jitter_ms=5000)
    for tag in range(20):
        append(log, batch(timestamp=NOW_MS, tag=tag))
        assert not log.roll_if_due(NOW_MS)
    assert len(log.segments) == 1
    ages = set()
    for first in range(1000, 1100):
        segment = Segment(log.files, FOLDER, first, NOW_MS)
        ages.add(age_limit_ms(log, segment))
    assert len(ages) > 50
    assert 1 <= min(ages) < 200
    assert 800 < max(ages) <= 1000
    assert age_limit_ms(new_log(segment_ms=1000), segment) == 1000


def test_a_rolled_segment_asks_for_a_sync() -> None:
    log = filled()
    assert log.sync_due(NOW_MS)
    sync(log)
    assert not log.sync_due(NOW_MS + 10**9)
    assert log.flushed_offset == log.end_offset
    assert log.sync_target() is None


def test_flush_settings_ask_for_syncs() -> None:
    log = new_log(flush_interval_messages=6, flush_interval_ms=100)
    append(log, batch())
    assert not log.sync_due(NOW_MS + 99)
    assert log.sync_due(NOW_MS + 100)
    append(log, batch())
    assert log.sync_due(NOW_MS)


def test_a_sync_that_began_before_a_truncation_promises_only_what_is_left() -> None:
    log = filled(4)
    target = log.sync_target()
    assert target is not None
    log.truncate_to(6)
    append(log, batch(6))
    log.synced(target[0])
    assert log.flushed_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_reopened_log_is_the_same(clean: bool) -> None:
    log = filled()
    again = reopen(log, clean=clean)
    assert tags(again) == list(range(60))
    assert again.epochs.entries == [(0, 0), (1, 60), (2, 120)]
    assert again.size_bytes == log.size_bytes
    assert again.recovery.cut_bytes == 0
    append(again, batch(tag=60), leader_epoch=2)
    assert tags(again)[-1] == 60


def test_lost_indexes_are_made_again() -> None:
    log = filled()
    log.close(clean=True)
    for path in [one for one in log.files.contents if "index" in one]:
        del log.files.contents[path]
    again = reopen(log, clean=True)
    assert again.recovery.rebuilt_indexes == len(log.segments)
    assert tags(again, 250) == list(range(60))


def test_indexes_of_closed_segments_leave_memory() -> None:
    log = filled()
    log.index_cache = IndexCache(limit_bytes=1)
    assert tags(log, 250) == list(range(60))
    assert sum(one.offset_index is not None for one in log.segments) <= 2 + 1


def test_rot_before_the_recovery_point_is_named() -> None:
    log = filled(10, segment_bytes=1 << 20)
    sync(log)
    log.files.contents[log.active.file.path][400] ^= 4
    with pytest.raises(CorruptLog) as rot:
        reopen(log)
    assert rot.value.path == f"{FOLDER}/00000000000000000000.log"
    assert rot.value.position <= 400
    assert "offline" in str(rot.value)


def test_rot_found_by_a_reader_takes_the_partition_offline() -> None:
    log = filled(10, segment_bytes=1 << 20)
    path = log.active.file.path
    log.files.contents[path][16] = 9
    with pytest.raises(CorruptLog):
        log.read(0, max_bytes=1000, upto=END, at_least_one=True)
    with pytest.raises(CorruptLog):
        append(log, batch())


def test_a_log_that_is_shorter_than_its_recovery_point_is_not_opened() -> None:
    log = filled(10)
    with pytest.raises(CorruptLog, match="31 was synced"):
        reopen(log, recovery_point=31)


@pytest.mark.parametrize("offset", [0, 1, 3, 59, 60, 100, 179, 180, 500])
def test_truncation_cuts_whole_batches(offset: int) -> None:
    log = filled()
    sync(log)
    end = log.truncate_to(offset)
    assert end == log.end_offset == min(180, offset - offset % 3)
    assert tags(log) == list(range(end // 3))
    assert log.flushed_offset == end
    assert all(start < end for _, start in log.epochs.entries)
    append(log, batch(tag=end // 3), leader_epoch=7)
    for clean in (False, True):
        log = reopen(log, clean=clean)
        assert tags(log) == list(range(end // 3 + 1))


def test_truncating_fully_goes_on_at_the_leaders_start() -> None:
    log = filled()
    log.truncate_fully(1000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1000, 1000, 0)
    later = batch()
    patch(memoryview(later), 0, 1000, 3)
    log.append_as_follower(later, now_ms=NOW_MS)
    again = reopen(log)
    assert (again.start_offset, again.end_offset) == (1000, 1003)


def test_a_follower_keeps_offsets_and_epochs_and_leaves_a_partial_batch_out() -> None:
    leader, follower = filled(), new_log(**SMALL)
    while follower.end_offset < leader.end_offset:
        held = leader.read(follower.end_offset, max_bytes=700, upto=END, at_least_one=True)
        follower.append_as_follower(bytes(held) + bytes(held)[:50], now_ms=NOW_MS)
    assert read_batches(follower) == read_batches(leader)
    assert follower.epochs.entries == leader.epochs.entries
    with pytest.raises(ApiError):
        follower.append_as_follower(read_batches(leader)[0], now_ms=NOW_MS)


def test_epoch_ends() -> None:
    log = filled()
    assert log.end_offset_for_epoch(0) == (0, 60)
    assert log.end_offset_for_epoch(2) == (2, 180)
    assert log.end_offset_for_epoch(3) == (-1, -1)
    log.assign_leader_epoch(5)
    assert log.end_offset_for_epoch(3) == (2, 180)
    assert log.end_offset_for_epoch(5) == (5, 180)


def test_offsets_by_timestamp() -> None:
    log = filled()
    assert log.offset_for_timestamp(0, upto=END) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 101, upto=END) == (NOW_MS + 101, 31, 0)
    assert log.offset_for_timestamp(NOW_MS + 105, upto=END) == (NOW_MS + 110, 33, 0)
    assert log.offset_for_timestamp(NOW_MS + 105, upto=33) is None
    assert log.offset_for_timestamp(NOW_MS + 10_000, upto=END) is None
    assert log.max_timestamp_offset(upto=END) == (NOW_MS + 592, 179, 2)
    log.delete_records_before(40)
    assert log.offset_for_timestamp(0, upto=END) == (NOW_MS + 131, 40, 0)
    log.delete_records_before(180)
    assert log.offset_for_timestamp(0, upto=END) is None
    assert log.max_timestamp_offset(upto=END) == (NOW_MS + 592, 179, 2), "as in Kafka"
    log = filled()
    again = reopen(log, clean=True)
    assert again.offset_for_timestamp(NOW_MS + 105, upto=END) == (NOW_MS + 110, 33, 0)


def test_retention_by_time_and_size_keeps_what_is_not_replicated() -> None:
    log = filled(retention_ms=1000, file_delete_delay_ms=50)
    assert log.apply_retention(NOW_MS + 900, END) == []
    assert log.apply_retention(NOW_MS + 1400, 0) == []
    removed = log.apply_retention(NOW_MS + 1400, log.end_offset)
    assert all(path.endswith(".deleted") for path in removed)
    assert 0 < log.start_offset < log.end_offset
    assert tags(log)[0] == log.start_offset // 3
    log.remove_deleted_files(NOW_MS + 1500)
    assert not [path for path in log.files.contents if path.endswith(".deleted")]
    log.apply_retention(NOW_MS + 10**9, log.end_offset)
    assert log.start_offset == log.end_offset == 180
    assert reopen(log).end_offset == 180
    sized = filled(retention_bytes=4000, retention_ms=-1)
    sized.apply_retention(NOW_MS, END)
    assert 4000 <= sized.size_bytes < 7000


def test_deleting_records_moves_the_start() -> None:
    log = filled()
    log.delete_records_before(100)
    with pytest.raises(ApiError):
        log.read(99, max_bytes=100, upto=END, at_least_one=True)
    log.apply_retention(NOW_MS, END)
    assert log.start_offset == 100
    assert log.segments[0].base_offset <= 100
    with pytest.raises(ApiError):
        log.delete_records_before(181)
    assert reopen(log, log_start_offset=100).start_offset == 100


def test_deleting_records_writes_no_file() -> None:
    """A request may do it to thousands of logs in one step, in which no client is answered."""
    log = new_log()
    for epoch in (1, 3, 4):
        append(log, batch(10), leader_epoch=epoch)
    assert isinstance(log.files, MemoryFiles)
    before = {path: bytes(data) for path, data in log.files.contents.items()}
    log.delete_records_before(15)
    log.delete_records_before(21)
    assert log.epochs.entries == [(4, 21)]
    assert {path: bytes(data) for path, data in log.files.contents.items()} == before
    for again in (reopen(log, log_start_offset=21), reopen(log, clean=True, log_start_offset=21)):
        assert again.epochs.entries == [(4, 21)]
    append(again, batch(10), leader_epoch=5)
    assert reopen(again, log_start_offset=21).epochs.entries == [(4, 21), (5, 30)]


def transactional(producer_id: int, sequence: int) -> bytearray:
    return batch(
        2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def end_transaction(log: Log, producer_id: int, *, committed: bool) -> None:
    records = marker(producer_id, committed=committed)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, client=False)


def test_the_last_stable_offset_stops_at_undecided_transactions() -> None:
    log = new_log(segment_bytes=400)
    append(log, batch(1))
    append(log, transactional(1, 0))
    append(log, transactional(2, 0))
    assert log.last_stable_offset(5) == 1
    end_transaction(log, 1, committed=False)
    assert log.last_stable_offset(5) == 1, "the marker is not below the high watermark"
    assert log.last_stable_offset(6) == 3
    end_transaction(log, 2, committed=True)
    assert log.last_stable_offset(7) == 7
    for one in (log, reopen(log), reopen(log, clean=True)):
        assert log.aborted_transactions(0, 7) == [(1, 1)]
        assert one.aborted_transactions(0, 7) == [(1, 1)]
        assert one.aborted_transactions(6, 7) == []
        assert one.last_stable_offset(7) == 7


def test_a_lost_transaction_index_is_made_again() -> None:
    log = new_log(segment_bytes=400)
    for sequence in range(0, 12, 2):
        append(log, transactional(1, sequence))
        end_transaction(log, 1, committed=sequence % 4 == 0)
    log.close(clean=True)
    expected = log.aborted_transactions(0, END)
    assert len(expected) == 3
    for path in [one for one in log.files.contents if one.endswith(".txnindex")]:
        del log.files.contents[path]
    assert reopen(log, clean=True).aborted_transactions(0, END) == expected


def test_creating_touches_only_the_folder() -> None:
    log = new_log()
    assert log.files.list(FOLDER) == ["partition.metadata"]
    again = Log.open(log.files, FOLDER, KEY, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    assert (again.start_offset, again.end_offset) == (0, 0)
    assert log.statistics()["segments"] == 0


def test_segments_without_aborted_transactions_are_remembered_as_such() -> None:
    """A read_committed reader asks at every fetch, about every segment that follows."""
    log = new_log(segment_bytes=400)
    for tag in range(20):
        log.append_as_leader(batch(tag=tag), leader_epoch=0, now_ms=NOW_MS)
    assert len(log.segments) > 5
    for one in (log, reopen(log, clean=True), reopen(log)):
        one.aborted_transactions(0, one.end_offset)
        files = one.files
        one.files = None  # type: ignore[assignment]
        assert one.aborted_transactions(0, one.end_offset) == []
        one.files = files


def test_a_clock_that_goes_back_does_not_put_a_flush_off() -> None:
    log = new_log(flush_interval_ms=1000)
    log.append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert not log.sync_due(NOW_MS + 999)
    assert log.sync_due(NOW_MS + 1000)
    assert log.sync_due(NOW_MS - 86_400_000)
