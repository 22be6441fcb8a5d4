"""R5: idempotent producers: duplicates, gaps, fencing, expiry; their snapshot."""

from __future__ import annotations

import pytest
from tests.core.log.support import NOW_MS, batch, marker, new_log, reopen

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.log import AppendResult, Log
from anabranch.core.log.memory_files import MemoryFile
from anabranch.core.log.producer_snapshot import RETRIED_MS, decode_snapshot, encode_snapshot
from anabranch.core.log.producers import BATCHES_KEPT

LARGEST = 2**31 - 1


def send(log: Log, sequence: int, *, epoch: int = 0, count: int = 1) -> AppendResult:
    records = batch(count, producer_id=9, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)


def refused(log: Log, sequence: int, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        send(log, sequence, epoch=epoch)
    return refusal.value.code


@pytest.mark.parametrize("restart", ["no", "killed", "clean"])
def test_a_batch_that_comes_again_is_answered_with_its_first_place(restart: str) -> None:
    log = new_log()
    for sequence in range(0, 12, 2):
        send(log, sequence, count=2)
    if restart != "no":
        log = reopen(log, clean=restart == "clean")
    assert send(log, 10, count=2) == (10, 11, NOW_MS + 1, 0, True)
    assert send(log, 2, count=2) == (2, 3, NOW_MS + 1, 0, True)
    assert refused(log, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 12


def test_a_clean_start_finds_no_batches_of_an_older_epoch() -> None:
    log = new_log()
    for sequence in range(3):
        send(log, sequence)
    for sequence in range(3):
        send(log, sequence, epoch=1)
    log = reopen(log, clean=True)
    assert [each.last_sequence for each in log.producers.producers[9].batches] == [0, 1, 2]
    assert send(log, 0, epoch=1).duplicate


def test_a_cut_forgets_no_batch_that_stays() -> None:
    """The snapshot of a clean stop knows the last one; the others may be sent again as well."""
    log = new_log()
    for sequence in range(4):
        send(log, sequence)
    log = reopen(log, clean=True)
    send(log, 4)
    log.truncate_to(4)
    assert send(log, 1).first_offset == 1
    assert refused(log, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4).first_offset == 4


@pytest.mark.parametrize("end_offset", [5, 4])
def test_a_cut_just_behind_a_roll_forgets_none_either(end_offset: int) -> None:
    """The snapshot at the roll knows the last batch, and the segment none before it."""
    log = new_log()
    for sequence in range(4):
        send(log, sequence)
    log.roll(NOW_MS)
    for sequence in (4, 5):
        send(log, sequence)
    log.truncate_to(end_offset)
    first, last = end_offset - 3, end_offset - 1
    assert [send(log, each).first_offset for each in (first, last)] == [first, last]
    assert send(log, end_offset).first_offset == end_offset


def test_a_cut_to_an_older_epoch_remembers_nothing_of_the_newer() -> None:
    log = new_log()
    for sequence in range(3):
        send(log, sequence)
    for sequence in range(3):
        send(log, sequence, epoch=1)
    log.truncate_to(3)
    assert send(log, 1).duplicate
    assert send(log, 0, epoch=1).first_offset == 3


def test_a_clean_start_reads_the_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker opens thousands of logs before it serves. Of a producer that wrote long ago, and
    sends nothing again, a snapshot has the last batch."""
    log = new_log(index_interval_bytes=4096)
    long_ago_ms = NOW_MS - RETRIED_MS - 9
    for sequence in range(9):
        old = batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(old, leader_epoch=0, now_ms=long_ago_ms)
    for sequence in range(1200):
        send(log, sequence)
    read = []

    def read_blocking(file: MemoryFile, position: int, length: int) -> bytes:
        read.append(length)
        return file.read(position, length)

    monkeypatch.setattr(MemoryFile, "read_blocking", read_blocking)
    log = reopen(log, clean=True)
    assert sum(read) < 2 * 4096
    assert [len(each.batches) for each in log.producers] == [1, BATCHES_KEPT]
    assert send(log, 1195).duplicate


def test_gaps_are_refused() -> None:
    log = new_log()
    send(log, 0)
    assert refused(log, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 1)


def test_sequence_numbers_wrap() -> None:
    log = new_log()
    send(log, LARGEST - 1, count=4)  # LARGEST - 1, LARGEST, 0, 1
    assert send(log, LARGEST - 1, count=4).duplicate
    assert send(log, 2).first_offset == 4
    other = new_log()
    send(other, LARGEST)
    assert send(other, 0).first_offset == 1


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert send(new_log(), 77).first_offset == 0


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    log = new_log()
    send(log, 0)
    assert refused(log, 5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=1)
    assert refused(log, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 0, epoch=1).duplicate


def test_idle_producers_expire_unless_their_transaction_is_open() -> None:
    log = new_log(producer_id_expiration_ms=1000)
    send(log, 0)
    open_one = batch(1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(open_one, leader_epoch=0, now_ms=NOW_MS)
    assert log.expire_producers(NOW_MS + 999) == 0
    assert log.expire_producers(NOW_MS + 1000) == 1
    assert [one.producer_id for one in log.producers] == [3]


def test_a_partition_is_late_while_its_oldest_transaction_has_had_no_batch_for_long() -> None:
    log = new_log()
    assert not log.producers.is_late(NOW_MS + 1)
    records = batch(1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    assert not log.producers.is_late(NOW_MS)
    assert log.producers.is_late(NOW_MS + 1)
    ending = marker(3, committed=False, coordinator_epoch=6)
    log.append_as_leader(ending, leader_epoch=0, now_ms=NOW_MS, client=False)
    assert not log.producers.is_late(NOW_MS + 1)


def test_a_marker_ends_the_transaction_and_sets_the_coordinators_epoch() -> None:
    log = new_log()
    records = batch(1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    ending = marker(3, committed=True, coordinator_epoch=6)
    log.append_as_leader(ending, leader_epoch=0, now_ms=NOW_MS, client=False)
    (producer,) = log.producers
    assert (producer.coordinator_epoch, producer.transaction_first_offset) == (6, -1)
    with pytest.raises(ApiError) as refusal:
        log.producers.check_marker(3, 0, 5)
    assert refusal.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_snapshot_keeps_the_state_and_notices_damage() -> None:
    log = new_log()
    send(log, 0, count=3)
    records = batch(1, producer_id=3, producer_epoch=2, base_sequence=0, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    encoded = encode_snapshot(log.producers)
    states = decode_snapshot(encoded)
    assert states is not None
    assert encode_snapshot(states) == encoded
    assert states.open_transactions == {3: 3}
    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 1
        assert decode_snapshot(bytes(damaged)) is None
    assert decode_snapshot(encoded[:-1]) is None
