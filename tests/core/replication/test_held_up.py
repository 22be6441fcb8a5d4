"""A full disk refuses a batch: what the producer sent behind it waits for it, too."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.core.replication.peers import Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.log.files import DiskFull
from anabranch.core.replication.held_up import HELD_UP_MS

NONE, FULL = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def peers():
    """One broker: the order of what is in flight is decided where it is appended."""
    return Peers(1)


@contextmanager
def full_disk():
    def refuse(*_how):
        raise DiskFull("no room")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("anabranch.core.log.appending._write", refuse)
        yield


def send(peers, sequence, *, producer_id=7, epoch=0):
    batch = {"base_sequence": sequence, "producer_id": producer_id, "producer_epoch": epoch}
    return peers[1].produce(1, **batch).error_code


def refuse(peers, sequence, **whose):
    with full_disk():
        assert send(peers, sequence, **whose) == FULL


def test_what_comes_behind_a_batch_that_a_full_disk_refused_is_refused_alike(peers):
    """Told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka raises its epoch and doubles what others have."""
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 2) == FULL
    assert send(peers, 1) == NONE
    assert send(peers, 2) == NONE
    assert send(peers, 9) == OUT_OF_ORDER


def test_the_second_batch_of_a_new_producer_does_not_overtake_its_refused_first(peers):
    """The log knows nothing of the producer yet, and would let it begin anywhere."""
    refuse(peers, 0)
    assert send(peers, 1) == FULL
    assert send(peers, 0) == NONE
    assert send(peers, 1) == NONE
    assert peers[1].end == 2


def test_what_was_taken_before_the_refused_batch_is_still_known(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 0) == NONE
    assert send(peers, 2) == FULL
    assert peers[1].end == 1


def test_nobody_else_waits(peers):
    refuse(peers, 1)
    assert send(peers, 5, producer_id=8) == NONE
    assert send(peers, -1, producer_id=-1, epoch=-1) == NONE


def test_a_newer_epoch_of_the_producer_does_not_wait(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    assert send(peers, 0, epoch=1) == NONE
    assert send(peers, 1, epoch=1) == NONE


def test_a_batch_that_never_comes_again_is_not_waited_for_for_ever(peers):
    assert send(peers, 0) == NONE
    refuse(peers, 1)
    peers.now_ms += HELD_UP_MS
    assert send(peers, 2) == OUT_OF_ORDER


def test_refused_batches_are_forgotten_in_time(peers):
    for producer_id in range(100):
        refuse(peers, 1, producer_id=producer_id)
        peers.now_ms += HELD_UP_MS // 10
    assert len(peers[1].replica.held_up._refused) == 10


def test_a_refused_batch_that_comes_again_is_younger_than_others(peers):
    for producer_id in (7, 8):
        refuse(peers, 1, producer_id=producer_id)
    peers.now_ms += HELD_UP_MS // 2
    refuse(peers, 1, producer_id=7)
    peers.now_ms += HELD_UP_MS // 2
    refuse(peers, 1, producer_id=9)
    assert list(peers[1].replica.held_up._refused) == [7, 9]


def test_sequences_go_on_behind_the_largest_at_0(peers):
    largest = (1 << 31) - 1
    assert send(peers, largest - 1) == NONE
    refuse(peers, largest)
    assert send(peers, 0) == FULL
    assert [send(peers, each) for each in (largest, 0)] == [NONE, NONE]


def test_who_leads_on_in_another_epoch_still_waits_and_a_successor_does_not(peers):
    """A move that ends, or an election that changes nothing, gives the same leader a new epoch."""
    refuse(peers, 0)
    peers.elect(1)
    assert send(peers, 1) == FULL
    peers.elect(-1)
    peers.elect(1)
    assert send(peers, 1) == NONE
