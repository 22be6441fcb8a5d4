"""A closed segment without a transaction index: it is read apart, and what was found still holds."""

from __future__ import annotations

import pytest
from tests.core.log.support import (
    END,
    FOLDER,
    NOW_MS,
    append,
    batch,
    marker,
    new_log,
    reopen,
    sync,
)

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFile


def aborts(log: Log, producer_id: int, *, sequence: int = 0) -> None:
    """A transaction of three records that is aborted."""
    append(
        log,
        batch(
            producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        ),
    )
    log.append_as_leader(
        marker(producer_id, committed=False), leader_epoch=0, now_ms=NOW_MS, client=False
    )


def without_indexes(**settings: object) -> tuple[Log, list[tuple[int, int]]]:
    """A log of three closed segments as Kafka leaves one, and its aborted transactions."""
    log = new_log(**settings)
    for producer_id in (1, 2, 3):
        aborts(log, producer_id)
        if producer_id == 2:  # one that ends in the next segment
            append(log, batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
        if producer_id == 3:
            end = marker(9, committed=False)
            log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, client=False)
        log.roll(NOW_MS)
    expected = [tuple(each) for each in log.aborted_transactions(0, END)]
    again = reopen(log, clean=True)
    for segment in again.segments[:-1]:
        again.files.remove(segment.stem + ".txnindex")
    assert len(expected) == 4
    return again, expected


def told(log: Log, upto: int = END) -> list[tuple[int, int]]:
    """The answer, with what it lacks brought as often as need be."""
    for _ in range(10):
        try:
            return [tuple(each) for each in log.aborted_transactions(0, upto, blocking=False)]
        except ColdRead as cold:
            cold.warm()
    raise AssertionError("it is never there")


def test_no_batch_is_read_by_whoever_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    log, expected = without_indexes()
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFile, "read_blocking", None)
        with pytest.raises(ColdRead) as lost:
            log.aborted_transactions(0, END, blocking=False)
    assert lost.value.brings_bytes, "others' records need not wait for it"
    assert told(log) == expected
    again = reopen(log, clean=True)
    monkeypatch.setattr(MemoryFile, "read_blocking", None)
    assert told(again) == expected, "the indexes were written"


def test_two_who_ask_at_once_are_both_answered() -> None:
    log, expected = without_indexes()
    reads = []
    for _ in range(2):
        with pytest.raises(ColdRead) as lost:
            log.aborted_transactions(0, END, blocking=False)
        reads.append(lost.value)
    reads[0].warm()
    assert told(log) == expected
    reads[1].warm()
    assert told(log) == expected
    assert log.lost_indexes == {}


def test_what_was_found_before_a_cut_counts_no_longer() -> None:
    log, _ = without_indexes()
    with pytest.raises(ColdRead) as lost:
        log.aborted_transactions(0, END, blocking=False)
    lost.value.warm()
    log.truncate_to(0)
    append(log, batch())
    append(log, batch())
    first = log.segments[0]
    log.roll(NOW_MS)
    log.aborted.clear()
    log.files.remove(first.stem + ".txnindex")
    assert told(log) == []


def test_segments_that_are_removed_meanwhile_are_no_fault() -> None:
    log, expected = without_indexes(retention_ms=1, file_delete_delay_ms=0)
    with pytest.raises(ColdRead) as lost:
        log.aborted_transactions(4, END, blocking=False)
    base_offset = log.segments[1].base_offset
    assert log.apply_retention(NOW_MS + 10, base_offset)
    log.files.remove(f"{FOLDER}/{base_offset:020d}.snapshot")  # the one before is read, too
    log.remove_deleted_files(NOW_MS + 10)
    lost.value.warm()
    assert isinstance(lost.value.found, StorageFault)
    assert told(log) == [each for each in expected if each[1] >= log.start_offset]


def test_batches_that_have_rotted_are_said() -> None:
    log, _ = without_indexes()
    sync(log)
    log.files.contents[log.segments[0].file.path][16] = 9
    with pytest.raises(CorruptLog) as apart:
        told(log)
    log.lost_indexes.clear()
    with pytest.raises(CorruptLog) as here:
        log.aborted_transactions(0, END)
    assert vars(apart.value) == vars(here.value)
    assert str(apart.value) == str(here.value)
