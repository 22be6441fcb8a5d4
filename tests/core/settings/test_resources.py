"""Settings of groups and of subscriptions to clients' metrics: Kafka's words, defaults and bounds."""

from __future__ import annotations

import pytest

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.resources import (
    CLIENT_METRICS,
    GROUP,
    describe_client_metrics,
    describe_group,
    validate_client_metrics_configs,
    validate_group_configs,
)

BROKER = BrokerConfig.of()
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        (
            {"no.such": "1"},
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: no.such",
        ),
        (
            {"interval.ms": "5"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "soon"},
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration interval.ms: Not a number of type INT",
        ),
        (
            {"match": "client_id=a,name=x"},
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: name=x",
        ),
        (
            {"match": "client_id=("},
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id=(",
        ),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_a_bad_subscription_is_refused(values, code, words):
    with pytest.raises(ClientFault) as caught:
        validate_client_metrics_configs(values)
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_good_subscription_is_taken():
    validate_client_metrics_configs(
        {"interval.ms": "60000", "match": "client_id=a.*", "metrics": "org.apache.kafka."}
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"no.such": "1"}, "Unknown group config name: no.such"),
        (
            {SESSION: "5"},
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION: "99999999"},
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        ({SESSION: "soon"}, "Not a number of type INT"),
        ({"share.isolation.level": "x"}, "String must be one of: read_committed, read_uncommitted"),
        (
            {"streams.num.standby.replicas": "99"},
            "must be less than or equal to group.streams.max.standby.replicas",
        ),
    ],
)
def test_a_bad_group_is_refused(values, words):
    with pytest.raises(ClientFault) as caught:
        validate_group_configs(values, BROKER)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert words in caught.value.message


def test_a_session_outlasts_a_heartbeat():
    broker = BrokerConfig.of({"group.consumer.min.session.timeout.ms": "1"})
    with pytest.raises(ClientFault, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        validate_group_configs({SESSION: "5000", HEARTBEAT: "5000"}, broker)
    validate_group_configs({SESSION: "50000"}, broker)


def test_a_group_is_described_with_the_brokers_defaults():
    found = {each.name: each for each in describe_group({SESSION: "50000"}, BROKER, None)}
    assert sorted(found) == sorted(each.name for each in GROUP)
    assert (found[SESSION].value, found[SESSION].config_source) == ("50000", 8)
    assert (found[HEARTBEAT].value, found[HEARTBEAT].config_source) == ("5000", 5)
    assert found[HEARTBEAT].synonyms[0].source == 5
    assert [each.name for each in describe_group({}, BROKER, [SESSION])] == [SESSION]


def test_a_subscription_is_described_without_synonyms_of_defaults():
    found = {each.name: each for each in describe_client_metrics({"metrics": "a,b"}, None)}
    assert sorted(found) == sorted(each.name for each in CLIENT_METRICS)
    assert (found["metrics"].value, found["metrics"].config_source) == ("a,b", 7)
    assert (found["interval.ms"].value, found["interval.ms"].synonyms) == ("300000", [])
