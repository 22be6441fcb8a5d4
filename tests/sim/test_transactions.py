"""Transactions in the simulation: which schedules have them, that they stay clean and do enough."""

from __future__ import annotations

import pytest

from anabranch.sim.life import draw_plan
from anabranch.sim.schedule import run_schedule
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


@pytest.mark.parametrize("seed", CLEAN)
def test_a_schedule_with_transactions_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    assert outcome.counts
