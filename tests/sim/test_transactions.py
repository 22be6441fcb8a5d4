"""Transactions in the simulation: which schedules have them, that they stay clean and do enough."""

from __future__ import annotations

import pytest

from anabranch.core.types import TopicPartition
from anabranch.sim.clients.fetcher import written_as
from anabranch.sim.clients.transactional_records import Keying, record_of
from anabranch.sim.life import draw_plan
from anabranch.sim.plan_parts import SECOND_US
from anabranch.sim.schedule import run_schedule
from anabranch.sim.transaction_compaction import FOLLOWER_AWAY
from anabranch.sim.transaction_plan import EVERY, FIRST_SEED, OF_EACH, OWN_FAULTS

CLEAN = (107, 115)


def test_some_schedules_have_transactions_and_the_others_are_what_they_were():
    for seed in range(FIRST_SEED - 20, FIRST_SEED + 40):
        has_some = seed >= FIRST_SEED and seed % EVERY == OF_EACH
        assert (draw_plan(seed).transactions is not None) == has_some


def test_plans_have_every_fault_and_both_flows():
    plans = [draw_plan(seed) for seed in range(FIRST_SEED + 7, 900, EVERY)]
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert set(OWN_FAULTS) <= kinds
    flows = {each.manner.is_new_flow for plan in plans for each in plan.transactions.ids}
    assert flows == {True, False}
    assert {plan.transactions.version for plan in plans} == {0, 1, 2}


def test_half_of_these_plans_are_compacted_and_keep_brokers_away():
    plans = [draw_plan(seed) for seed in range(FIRST_SEED + 7, 900, EVERY)]
    compacted = [plan for plan in plans if plan.transactions.compacted]
    assert 0.3 < len(compacted) / len(plans) < 0.7
    for plan in compacted:
        away = [fault for fault in plan.faults if fault.kind == FOLLOWER_AWAY]
        assert max(fault.lasts_us for fault in away) >= 3 * SECOND_US
    settings = [dict(topic.configs) for plan in compacted for topic in plan.transactions.topics]
    assert {each.get("cleanup.policy") for each in settings} == {None, "compact", "compact,delete"}


def test_keys_are_few_and_some_records_are_tombstones():
    keying = Keying(frozenset({"keyed"}), 3)
    written = [keying.written(TopicPartition("keyed", 0), b"one/%d" % n) for n in range(200)]
    assert {each.key for each in written} == {b"k0", b"k1", b"k2"}
    for each in written:
        record = record_of(each, 0, 0)
        assert written_as(record) == each.value
        assert (record.value is None) == each.is_tombstone
    assert 10 < sum(each.is_tombstone for each in written) < 60
    assert keying.written(TopicPartition("other", 0), b"one/1").key is None


@pytest.mark.parametrize("seed", CLEAN)
def test_a_schedule_with_transactions_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    assert outcome.counts
