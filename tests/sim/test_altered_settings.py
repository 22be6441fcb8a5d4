"""Schedules that alter settings: which seeds have them, and that a controller takes what is right."""

from __future__ import annotations

from dataclasses import fields

import pytest

from anabranch.core.errors import ClientFault
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.validation import validate_broker_configs, validate_topic_configs
from anabranch.sim.life import draw_plan
from anabranch.sim.plan import SEEDS_OF_PLANS, Plan
from anabranch.sim.plan_parts import SAFETY_US, SETTLED_US
from anabranch.sim.schedule import run_plan
from anabranch.sim.settings_plan import (
    BY_DEFAULT,
    DEFAULT_VALUES,
    DISKLESS_VALUES,
    FIRST_SEED,
    TOPIC_VALUES,
    with_altered_settings,
)
from anabranch.sim.shrink import shrink

ALTERED = FIRST_SEED + 5


def values(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, value) for name, those in table.items() for value in those]


@pytest.mark.parametrize(("name", "value"), values({**TOPIC_VALUES, **DISKLESS_VALUES}))
def test_every_value_is_right_for_a_topic(name, value):
    validate_topic_configs({name: value}, BrokerConfig.of())


@pytest.mark.parametrize(("name", "value"), values(DEFAULT_VALUES))
def test_every_value_is_right_for_all_brokers(name, value):
    validate_broker_configs({name: value}, per_broker=False)
    with pytest.raises(ClientFault):
        validate_broker_configs({name: "none"}, per_broker=False)


@pytest.mark.parametrize("seed", [0, 5, 413, FIRST_SEED - 3, FIRST_SEED, FIRST_SEED + 3])
def test_other_seeds_are_what_they_were(seed):
    plan = draw_plan(seed)
    assert with_altered_settings(plan) is plan and not plan.alterations


def test_the_rest_of_a_plan_stays_and_records_get_keys():
    plan = draw_plan(ALTERED)
    assert plan.alterations and all(topic.is_compacted for topic in plan.topics)
    assert all(SETTLED_US < each.at_us < SAFETY_US for each in plan.alterations)
    assert draw_plan(ALTERED + SEEDS_OF_PLANS).alterations == plan.alterations
    drawn = {"topics", "alterations", "faults", "operations", "config", "seed"}
    assert {each.name for each in fields(Plan)} > drawn
    assert {operation.kind for operation in plan.operations} >= {"send"}


def test_topics_defaults_and_diskless_topics_are_altered():
    plans = [draw_plan(seed) for seed in range(FIRST_SEED, FIRST_SEED + 400)]
    altered = [each for plan in plans for each in plan.alterations]
    names = {each.name for each in altered}
    assert names >= {*TOPIC_VALUES, *DEFAULT_VALUES, *DISKLESS_VALUES}
    assert any(each.topic == BY_DEFAULT for each in altered)
    assert {each.operation for each in altered} == {0, 1, 2, 3}
    assert any(each.must_be_refused for each in altered)


def test_changes_are_left_out_one_by_one_when_a_plan_is_made_smaller():
    plan = draw_plan(ALTERED)
    wanted = plan.alterations[1]
    found = shrink(plan, "x", lambda each: "x" if wanted in each.alterations else "")
    assert found.plan.alterations == (wanted,)


def test_a_schedule_that_alters_settings_is_clean_and_repeats():
    plan = draw_plan(ALTERED)
    first, second = run_plan(plan), run_plan(plan)
    assert first.ok, first.sentence
    assert first.digest == second.digest
