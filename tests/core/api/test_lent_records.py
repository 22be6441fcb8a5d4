"""Which fetches are answered with what is lent out of a file, and which are read."""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import InMemoryNode
from tests.core.api.test_p01_fetch import append, batch, fetch, only, part

from anabranch.core.log.memory_files import MemoryFile
from anabranch.core.types import Loan
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


def test_aborted_transactions_are_looked_for_in_the_batches(node):
    node.topic()
    log = node.replica().log
    log.append_as_leader(batch(2, **PRODUCER), leader_epoch=0, now_ms=node.now_ms)
    marker = build_end_marker(
        committed=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, now_ms=node.now_ms
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=node.now_ms, client=False)
    append(node, 3)
    answer = only(node.send(fetch(part(), isolation_level=1), 12))
    assert not isinstance(answer.records, Loan)
    assert [each.producer_id for each in answer.aborted_transactions] == [5]
    beyond = only(node.send(fetch(part(offset=3), isolation_level=1), 12))
    assert isinstance(beyond.records, Loan)
    assert beyond.aborted_transactions == []
    assert isinstance(only(node.send(fetch(part()), 12)).records, Loan)


def test_an_empty_first_batch_is_passed_over_as_ever(node, monkeypatch):
    node.topic()
    append(node, 3)
    append(node, 3)
    monkeypatch.setattr("anabranch.core.api.fetch_pass.is_empty", lambda _head: True)
    assert not isinstance(only(node.send(fetch(part()), 12)).records, Loan)
