"""Schedules with delegation tokens: which seeds have them, what is asked, and that they are clean."""

from __future__ import annotations

import pytest

from anabranch.core.api.registry import handlers
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.sim.clients.token_workload import request_of
from anabranch.sim.life import draw_plan
from anabranch.sim.plan import SEEDS_OF_PLANS
from anabranch.sim.plan_parts import SAFETY_US, SETTLED_US
from anabranch.sim.rights_plan import FIRST_SEED
from anabranch.sim.schedule import run_plan
from anabranch.sim.shrink import shrink
from anabranch.sim.token_plan import (
    END,
    LONGEST_LIFETIME_MS,
    MAKE,
    PEOPLE,
    RENEW,
    UNKNOWN,
    with_tokens,
)

FIRST = FIRST_SEED + 10
PLANS = [draw_plan(seed) for seed in range(FIRST, FIRST + 320, 16)]
CHANGES = [each for plan in PLANS for each in plan.tokens]


@pytest.mark.parametrize("seed", [2, 10, FIRST - 16, FIRST - 8, FIRST + 8, FIRST + 1])
def test_other_seeds_are_what_they_were(seed):
    plan = draw_plan(seed)
    assert with_tokens(plan) is plan and not plan.tokens


def test_tokens_are_made_renewed_and_ended_by_everybody_for_everybody():
    assert all(SETTLED_US <= each.at_us < SAFETY_US for each in CHANGES)
    for kind in (RENEW, END):
        asked = [each for each in CHANGES if each.kind == kind]
        assert {each.who for each in asked} >= set(PEOPLE)
        assert {(each.period_ms > 0) - (each.period_ms < 0) for each in asked} == {-1, 0, 1}
    made = [each for each in CHANGES if each.kind == MAKE]
    assert {each.who for each in made} == {*PEOPLE, UNKNOWN}
    assert {each.owner for each in made} == {*PEOPLE, ""}
    assert {each.owner in ("", each.who) for each in made} == {True, False}
    assert {len(each.renewers) for each in made} == {0, 1, 2}
    assert {each.period_ms > LONGEST_LIFETIME_MS for each in made} == {True, False}


def test_each_change_is_of_a_token_that_is_made_before():
    for plan in PLANS:
        made = set()
        for each in plan.tokens:
            assert (each.number in made) is (each.kind != MAKE)
            made.add(each.number)


@pytest.mark.parametrize(
    "name",
    [
        "delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms",
        "delegation.token.expiry.check.interval.ms", "sasl.enabled.mechanisms",
        "connections.max.reauth.ms", "allow.everyone.if.no.acl.found",
    ],
)  # fmt: skip
def test_settings_of_tokens_differ_from_seed_to_seed(name):
    texts = {dict(plan.config)[name] for plan in PLANS}
    assert len(texts) > 1
    for plan in PLANS:
        BrokerConfig.of(dict(plan.config))


def test_each_request_can_be_sent():
    for each in CHANGES:
        message = request_of(each, b"x" * 64)
        version = handlers()[message.api_key].versions[-1]
        frame = bytearray(encode_bytes(message, version))
        assert decode(type(message), frame, version) == message


def test_the_rest_of_a_plan_stays():
    plan, again = draw_plan(FIRST), draw_plan(FIRST + SEEDS_OF_PLANS)
    assert plan.tokens == again.tokens and plan.rights == again.rights


def test_requests_are_left_out_one_by_one_when_a_plan_is_made_smaller():
    plan = draw_plan(FIRST)
    wanted = plan.tokens[1]
    found = shrink(plan, "x", lambda each: "x" if wanted in each.tokens else "")
    assert found.plan.tokens == (wanted,)


def test_a_schedule_with_tokens_is_clean_and_repeats():
    plan = draw_plan(FIRST)
    first, second = run_plan(plan), run_plan(plan)
    assert first.ok, first.sentence
    assert first.digest == second.digest
    for mark in ("token-renewed", "token-swept", "token-over-refused", "token-from-snapshot"):
        assert first.marks[mark], mark
