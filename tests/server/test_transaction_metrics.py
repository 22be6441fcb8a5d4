"""What a node tells Prometheus of transactions."""

from __future__ import annotations

from tests.core.coordination.transactions.transaction_world import TransactionWorld

from anabranch.core.errors import ErrorCode
from anabranch.server.exported import METRICS, TRANSACTIONS
from anabranch.server.metrics import samples_of_transactions

HERE, THERE = ("here", 0), ("there", 1)
OF_PARTITIONS = {"verification_failures_total": 0, "producer_ids": 0, "late_partitions": 0}


def samples(world):
    counts = {**world.coordinator.statistics(), **OF_PARTITIONS}
    return {(name, *labels): value for name, labels, value in samples_of_transactions(counts)}


def test_transactions_are_counted_until_each_partition_has_its_marker():
    world = TransactionWorld()
    producer = world.producer()
    assert world.add(producer, HERE, THERE) == [ErrorCode.NONE] * 2
    found = samples(world)
    assert found[("anabranch_transaction_ids",)] == 1
    assert found[("anabranch_transaction_ongoing",)] == 1
    goes_on = world.ended(producer)
    assert samples(world)[("anabranch_transaction_awaiting_markers",)] == 1
    world.deliver()
    found = samples(world)
    assert found[("anabranch_transaction_awaiting_markers",)] == 0
    assert found[("anabranch_transaction_markers_total",)] == 2
    assert found[("anabranch_transaction_ended_total", "commit")] == 1
    assert world.add(goes_on, HERE) == [ErrorCode.NONE]
    world.ended(goes_on, commits=False)
    assert samples(world)[("anabranch_transaction_ended_total", "abort")] == 1
    assert {name for name, *_ in found} == {each.name for each in TRANSACTIONS}
    assert set(TRANSACTIONS) <= set(METRICS)
