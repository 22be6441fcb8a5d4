"""The tables hold what Kafka 4.1.0's own definitions say, with a sentence of ours for each."""

from __future__ import annotations

import kafka_facts
import pytest

from anabranch.core.settings.catalogue import (
    ALIASES,
    BROKER_SETTINGS,
    NEVER_EXISTED,
    TOPIC_SETTINGS,
    TOPIC_TO_BROKER,
    WITHOUT_EFFECT,
)
from anabranch.core.settings.setting import Mark, parse

FACTS = kafka_facts.rows("kafka_4_1_0_settings.tsv")
SETTINGS = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS}
EVERY = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


@pytest.mark.parametrize("resource", ["broker", "topic"])
def test_the_names_are_kafka_s_and_those_marked_ours(resource):
    kafka = {row[1] for row in FACTS if row[0] == resource}
    known = {name for name, setting in SETTINGS[resource].items() if not setting.ours}
    assert known == kafka


@pytest.mark.parametrize("row", FACTS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_type_default_importance_scope_and_flags_are_kafka_s(row):
    resource, name, type_, default, _, importance, scope, flags = row
    setting = SETTINGS[resource][name]
    assert setting.type.name == type_
    assert setting.default == kafka_facts.text_or_none(default)
    assert setting.importance.value == importance.lower()
    assert setting.scope.value == scope
    assert setting.internal == ("internal" in flags)
    assert setting.required == ("required" in flags)


@pytest.mark.parametrize(
    "row", [row for row in FACTS if row[4].startswith("[")], ids=lambda row: f"{row[0]}-{row[1]}"
)
def test_limits_are_kafka_s(row):
    resource, name, limits = row[0], row[1], row[4]
    assert SETTINGS[resource][name].limits == limits


def test_every_default_is_a_value_that_the_setting_may_have():
    for setting in EVERY:
        if setting.default is not None and not setting.name.endswith(("voters", "servers")):
            parse(setting, setting.default)


def test_every_setting_has_one_short_sentence():
    for setting in EVERY:
        assert setting.sentence.endswith("."), setting.name
        assert 10 <= len(setting.sentence) <= 100, setting.name


def test_topic_settings_default_to_broker_settings_that_exist():
    for topic_name, broker_name in TOPIC_TO_BROKER.items():
        assert TOPIC_SETTINGS[topic_name].type is BROKER_SETTINGS[broker_name].type
        assert broker_name in TOPIC_SETTINGS[topic_name].synonyms


def test_r15_aliases_lead_to_settings_and_ghosts_are_no_settings():
    assert ALIASES["log.recovery.threads.per.data.dir"] == "num.recovery.threads.per.data.dir"
    for name in ALIASES.values():
        assert name in BROKER_SETTINGS
    assert "unclean.shutdown.recovery.enable" in NEVER_EXISTED
    assert not set(NEVER_EXISTED) & set(BROKER_SETTINGS)


def test_switches_without_effect_are_settings_that_are_not_in_force():
    assert not [name for name in WITHOUT_EFFECT if BROKER_SETTINGS[name].in_force]


def test_r7_the_older_imbalance_percentage_is_accepted():
    assert BROKER_SETTINGS["leader.imbalance.per.broker.percentage"].ours


def test_marks_are_words_of_the_tables():
    assert {mark.value for mark in Mark} == {"in force", "internal", "required", "ours"}
