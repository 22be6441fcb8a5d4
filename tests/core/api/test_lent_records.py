"""Which fetches are answered with what is lent out of a file, and which are read."""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import InMemoryNode
from tests.core.api.test_p01_fetch import append, batch, fetch, only, part

from anabranch.core.log.memory_files import MemoryFile
from anabranch.core.types import Loan
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import build_end_marker

PRODUCER = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


@pytest.fixture(autouse=True)
def lends(monkeypatch):
    """Files in memory lend whatever they are asked for."""
    monkeypatch.setattr(MemoryFile, "lend", lambda _self, _position, length: Loan(length))


def test_a_consumer_s_records_are_lent(node):
    node.topic()
    append(node, 3)
    append(node, 3)
    held = node.replica().log.read(0, max_bytes=1 << 20, upto=6, at_least_one=True)
    lent = only(node.send(fetch(part()), 12)).records
    assert isinstance(lent, Loan)
    assert len(lent) == len(held)


def test_those_of_which_some_are_not_committed_yet_end_before_them():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    append(node, 3)
    append(node, 3)
    node.replica().follower_fetched(2, 3)
    node.replica().advance()
    first = node.replica().log.read(0, max_bytes=1 << 20, upto=3, at_least_one=True)
    assert len(only(node.send(fetch(part()), 12)).records) == len(first)


def test_a_follower_s_are_read_since_they_may_yet_be_truncated():
    node = InMemoryNode(brokers=(1, 2))
    node.topic(replicas=(1, 2))
    append(node, 3)
    assert not isinstance(only(node.send(fetch(part(), replica_id=2), 12)).records, Loan)


def append_aborted(node, producer_id):
    """A transaction of two records and its marker."""
    log = node.replica().log
    how = PRODUCER | {"producer_id": producer_id}
    log.append_as_leader(batch(2, **how), leader_epoch=0, now_ms=node.now_ms)
    marker = build_end_marker(
        committed=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0,
        now_ms=node.now_ms,
    )  # fmt: skip
    log.append_as_leader(marker, leader_epoch=0, now_ms=node.now_ms, client=False)


@pytest.mark.parametrize("rolls", [False, True])
def test_what_is_lent_is_told_with_the_transactions_that_were_aborted_in_it(node, rolls):
    """As many bytes as a reader likes, from each batch on: what is told is what would be told with
    the same batches read."""
    node.topic(configs={"index.interval.bytes": "150"})
    log = node.replica().log
    for producer_id in (5, 6, 7):
        append_aborted(node, producer_id)
        append(node, 3)
        if rolls:
            log.roll(node.now_ms)
    held = log.read(0, max_bytes=1 << 20, upto=log.end_offset, at_least_one=True)
    lent = 0
    for offset in range(log.end_offset):
        for most in range(61, len(held) + 200, 37):
            wanted = part(offset=offset, max_bytes=most)
            answer = only(node.send(fetch(wanted, isolation_level=1), 12))
            lent += isinstance(answer.records, Loan)
            read = log.read(offset, max_bytes=most, upto=log.end_offset, at_least_one=True)
            assert len(answer.records) == len(read)
            end = max(header.next_offset for _, header in walk(read))
            expected = [
                (each.producer_id, each.first_offset)
                for each in log.aborted_transactions(offset, log.end_offset)
                if each.first_offset < end
            ]
            told = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
            assert told == expected
    assert lent


def test_an_empty_first_batch_is_passed_over_as_ever(node, monkeypatch):
    node.topic()
    append(node, 3)
    append(node, 3)
    monkeypatch.setattr("anabranch.core.api.fetch_pass.is_empty", lambda _head: True)
    assert not isinstance(only(node.send(fetch(part()), 12)).records, Loan)
