"""R5, R15: folders that a crash left in the middle of a swap, ours or Kafka's, open whole.

Kafka renames every new file from `.cleaned` to `.swap`, then every old one to `.deleted`, then the
new ones to their names. While a `.cleaned` file is left the old segments count, afterwards the new.
"""

from __future__ import annotations

import pytest
from tests.core.log.compacting import batches_of, make
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, new_log, reopen, sync

from anabranch.core.errors import CorruptLog
from anabranch.core.log import segment_swap
from anabranch.core.log.compaction import CLEANED, Outcome
from anabranch.core.log.log import Log
from anabranch.core.log.segment import DELETED, LOG, offset_name
from anabranch.core.wire.records import Record, build_batch, decode_records

SWAP = ".swap"


def records(log: Log) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for one in batches_of(log) for each in decode_records(one)]


@pytest.fixture
def dirty() -> Log:
    """Three small segments of updates of two keys, and the active one."""
    log = new_log(cleanup_policy=("compact",), segment_bytes=10_000)
    for number in range(12):
        record = Record(0, NOW_MS, b"k%d" % (number % 2), b"%d" % number)
        append(log, build_batch([record]))
        if number % 4 == 3:
            log.roll(NOW_MS)
    sync(log)
    return log


ALL = [(number, b"%d" % number) for number in range(12)]
NEWEST = ALL[-2:]


def cleaned(log: Log) -> Outcome:
    """A pass whose new files are left; all old segments become one."""
    outcome = make(log, NOW_MS)
    assert [new.replaces for new in outcome.segments] == [(0, 4, 8)]
    return outcome


def rename(log: Log, suffix: str, to: str) -> None:
    for name in log.files.list(log.folder):
        if name.endswith(suffix):
            path = f"{log.folder}/{name}"
            log.files.rename(path, path.removesuffix(suffix) + to)


def opened(log: Log) -> Log:
    again = Log.open(
        log.files, log.folder, KEY, TOPIC_ID, log.config, now_ms=NOW_MS, recovery_point=12
    )
    left = (".swap", ".swapping", ".cleaned", ".deleted")
    assert not [name for name in log.files.list(log.folder) if name.endswith(left)]
    assert records(reopen(again)) == records(again)
    return again


def test_new_files_that_are_not_marked_are_rubbish(dirty: Log) -> None:
    cleaned(dirty)
    assert records(opened(dirty)) == ALL


def test_kafkas_swap_is_completed_when_all_new_files_are_marked(dirty: Log) -> None:
    cleaned(dirty)
    rename(dirty, CLEANED, SWAP)
    log = opened(dirty)
    assert records(log) == NEWEST
    assert [each.base_offset for each in log.segments] == [0, 12]


def test_kafkas_swap_is_undone_while_a_new_file_is_not_marked(dirty: Log) -> None:
    cleaned(dirty)
    path = f"{dirty.folder}/{offset_name(0, LOG)}"
    held = dirty.files.read(path + CLEANED)
    rename(dirty, CLEANED, SWAP)
    dirty.files.write_atomic(path + CLEANED, held, sync=True)
    assert records(opened(dirty)) == ALL


@pytest.mark.parametrize("gone", [(0,), (0, 4), (4,), (0, 4, 8)])
def test_kafkas_swap_is_completed_when_old_segments_have_gone(
    dirty: Log, gone: tuple[int, ...]
) -> None:
    cleaned(dirty)
    rename(dirty, CLEANED, SWAP)
    for base_offset in gone:
        path = f"{dirty.folder}/{offset_name(base_offset, LOG)}"
        dirty.files.rename(path, path + DELETED)
    assert records(opened(dirty)) == NEWEST


def test_our_swap_that_was_only_marked_is_undone(dirty: Log) -> None:
    (new,) = cleaned(dirty).segments
    segment_swap.prepare(dirty.files, dirty.folder, new)
    assert records(opened(dirty)) == ALL


def test_our_swap_is_completed_once_the_new_segment_has_its_name(dirty: Log) -> None:
    (new,) = cleaned(dirty).segments
    segment_swap.prepare(dirty.files, dirty.folder, new)
    segment_swap.swap(dirty, new, NOW_MS)
    assert records(dirty) == NEWEST
    log = opened(dirty)
    assert records(log) == NEWEST
    assert [each.base_offset for each in log.segments] == [0, 12]


def test_a_log_that_was_cut_meanwhile_takes_no_new_segment(dirty: Log) -> None:
    (new,) = cleaned(dirty).segments
    dirty.truncate_to(6)
    with pytest.raises(segment_swap.Stale):
        segment_swap.swap(dirty, new, NOW_MS)
    assert records(dirty) == ALL[:6]


def test_a_damaged_swap_file_does_not_take_what_is_there(dirty: Log) -> None:
    cleaned(dirty)
    rename(dirty, CLEANED, SWAP)
    path = f"{dirty.folder}/{offset_name(0, LOG)}"
    dirty.files.write_atomic(path + SWAP, b"\x00" * 100, sync=True)
    with pytest.raises(CorruptLog):
        opened(dirty)
    names = dirty.files.list(dirty.folder)
    assert offset_name(4, LOG) in names
    assert offset_name(8, LOG) in names
