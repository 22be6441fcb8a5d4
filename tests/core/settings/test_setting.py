"""How a text becomes a value, and with which words it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import ErrorCode
from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS
from anabranch.core.settings.setting import ConfigFault, Type, parse, to_text

EVERY = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


def refusal(setting, text):
    with pytest.raises(ConfigFault) as caught:
        parse(setting, text)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert caught.value.name == setting.name
    return caught.value.message


def test_values_have_the_type_of_their_setting():
    assert parse(BROKER_SETTINGS["auto.create.topics.enable"], " TRUE ") is True
    assert parse(BROKER_SETTINGS["num.partitions"], "+3") == 3
    assert parse(BROKER_SETTINGS["log.cleaner.min.cleanable.ratio"], "1e-1") == 0.1
    assert parse(BROKER_SETTINGS["log.cleanup.policy"], "compact , delete") == ("compact", "delete")
    assert parse(BROKER_SETTINGS["log.cleanup.policy"], "") == ()
    assert parse(BROKER_SETTINGS["broker.rack"], " r1 ") == "r1"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("num.partitions", "abc", "Not a number of type INT"),
        ("num.partitions", "1_000", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("num.partitions", "٣", "Not a number of type INT"),
        ("num.partitions", "0", "Value must be at least 1"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Not a number of type DOUBLE"),
        ("log.preallocate", "yes", "Expected value to be either true or false"),
        ("offsets.topic.replication.factor", "40000", "Not a number of type SHORT"),
    ],
)
def test_refusals_are_kafka_s_words(name, text, sentence):
    expected = f"Invalid value {text} for configuration {name}: {sentence}"
    assert refusal(BROKER_SETTINGS[name], text) == expected


def test_an_element_of_a_list_is_named_alone():
    message = refusal(BROKER_SETTINGS["process.roles"], "broker,cook")
    assert message == (
        "Invalid value cook for configuration process.roles: "
        "String must be one of: broker, controller"
    )


def test_any_case_where_kafka_takes_any_case():
    setting = BROKER_SETTINGS["group.consumer.migration.policy"]
    assert parse(setting, "Upgrade") == "Upgrade"
    assert "(case insensitive)" in refusal(setting, "sideways")


def test_quorum_addresses_are_checked():
    voters = BROKER_SETTINGS["controller.quorum.voters"]
    servers = BROKER_SETTINGS["controller.quorum.bootstrap.servers"]
    assert parse(voters, "1@a:1,2@[::1]:2") == ("1@a:1", "2@[::1]:2")
    assert parse(servers, "a:1") == ("a:1",)
    assert "{id}@{host}:{port}" in refusal(voters, "x")
    assert "Failed to parse host name from x" in refusal(servers, "x")
    assert parse(servers, "a:65535") == ("a:65535",)
    assert "largest port is 65535" in refusal(servers, "a:1,localhost:65536")


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
def test_defaults_survive_a_round_trip(setting):
    if setting.default is not None:
        assert to_text(parse(setting, setting.default)) == setting.default


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_longs_survive_a_round_trip(value):
    setting = TOPIC_SETTINGS["retention.bytes"]
    assert parse(setting, to_text(value)) == value


@given(value=st.floats(0, 1))
def test_doubles_survive_a_round_trip(value):
    setting = TOPIC_SETTINGS["min.cleanable.dirty.ratio"]
    assert parse(setting, to_text(value)) == value


def verdict(setting, text):
    """The value, or the fault."""
    try:
        return parse(setting, text)
    except ConfigFault as fault:
        return fault


@given(text=st.text(max_size=20), setting=st.sampled_from(EVERY))
def test_any_text_is_a_value_or_a_config_fault(text, setting):
    result = verdict(setting, text)
    if isinstance(result, ConfigFault):
        assert result.name == setting.name
    else:
        assert setting.type is not Type.BOOLEAN or isinstance(result, bool)
