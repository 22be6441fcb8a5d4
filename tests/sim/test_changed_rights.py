"""Schedules that change rights: which seeds have them, and what they change."""

from __future__ import annotations

from dataclasses import fields

import pytest

from anabranch.core.access.acls import DENY, Acl
from anabranch.core.controller.acls import check_new
from anabranch.core.quotas.entities import check_value, keys_of
from anabranch.sim.clients.rights_workload import request_of
from anabranch.sim.life import draw_plan
from anabranch.sim.plan import SEEDS_OF_PLANS, Plan
from anabranch.sim.plan_parts import SAFETY_US, SETTLED_US
from anabranch.sim.rights_plan import FIRST_SEED, with_changed_rights
from anabranch.sim.schedule import run_plan
from anabranch.sim.shrink import shrink

CHANGED = FIRST_SEED + 2


@pytest.mark.parametrize("seed", [2, 10, FIRST_SEED - 6, FIRST_SEED, FIRST_SEED + 3])
def test_other_seeds_are_what_they_were(seed):
    plan = draw_plan(seed)
    assert with_changed_rights(plan) is plan and not plan.rights


def test_rules_users_and_quotas_change_and_each_change_is_right():
    plans = [draw_plan(seed) for seed in range(CHANGED, CHANGED + 160, 8)]
    changes = [each for plan in plans for each in plan.rights]
    assert all(SETTLED_US <= each.at_us < SAFETY_US for each in changes)
    rules = [each.what for each in changes if isinstance(each.what, Acl)]
    for rule in rules:
        check_new(rule)
    assert any(rule.permission == DENY for rule in rules)
    others = [each for each in changes if not isinstance(each.what, Acl)]
    quotas = [each for each in others if isinstance(each.what[0], tuple)]
    for each in quotas:
        entity, key = each.what
        check_value(keys_of(dict(entity)), key, each.value or 1.0)
    assert {type(request_of(each)).__name__ for each in changes} == {
        "CreateAclsRequest", "DeleteAclsRequest", "AlterUserScramCredentialsRequest",
        "AlterClientQuotasRequest",
    }  # fmt: skip


def test_the_rest_of_a_plan_stays():
    plan = draw_plan(CHANGED)
    assert plan.rights == draw_plan(CHANGED + SEEDS_OF_PLANS).rights
    assert {each.name for each in fields(Plan)} > {"rights", "faults", "config"}


def test_changes_are_left_out_one_by_one_when_a_plan_is_made_smaller():
    plan = draw_plan(CHANGED)
    wanted = plan.rights[1]
    found = shrink(plan, "x", lambda each: "x" if wanted in each.rights else "")
    assert found.plan.rights == (wanted,)


def test_a_schedule_that_changes_rights_is_clean_and_repeats():
    plan = draw_plan(CHANGED)
    first, second = run_plan(plan), run_plan(plan)
    assert first.ok, first.sentence
    assert first.digest == second.digest
    assert first.marks["rights-from-snapshot"] and first.marks["right-revoked"]
