"""DescribeConfigs: which resource is described, which refused, in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll, Operation, ResourceType
from anabranch.core.api.log_levels import NoLogs
from anabranch.core.api.p32_describe_configs import HANDLER
from anabranch.core.errors import ErrorCode
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.codec import decode, encode
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


class Image:
    """Topics with one setting."""

    def topic(self, name):
        return object() if name in ("flights", "trains", "ships") else None

    def config(self, resource_type, name):
        return {"retention.ms": "5"}


class Deny:
    """An authorizer that hides some topics, or the cluster."""

    allows_all = False

    def __init__(self, *hidden):
        self.hidden = hidden

    def authorize(self, request, operation, resource, name):
        assert operation is Operation.DESCRIBE_CONFIGS
        return (resource, name) not in self.hidden


def node(authorizer=None):
    return SimpleNamespace(
        broker_id=1,
        config=BrokerConfig.of(),
        image=Image(),
        authorizer=authorizer or AllowAll(),
        loggers=NoLogs(),
    )


def describe(*resources, authorizer=None, **flags):
    body = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
            for kind, name, *keys in resources
        ],
        **flags,
    )
    return HANDLER.broker(node(authorizer), SimpleNamespace(body=body), 0).results


def test_a_topic_s_settings_with_their_source():
    (result,) = describe((TOPIC, "flights", "retention.ms", "segment.ms"))
    assert [(each.name, each.value, each.config_source) for each in result.configs] == [
        ("retention.ms", "5", 1),
        ("segment.ms", "604800000", 5),
    ]
    assert result.error_code == ErrorCode.NONE


def test_topics_with_the_same_settings_are_looked_up_once():
    """Tools ask for those of all topics at once, and nobody else is answered meanwhile."""
    one, other, few, absent = describe(
        (TOPIC, "flights"), (TOPIC, "trains"), (TOPIC, "ships", "retention.ms"), (TOPIC, "none")
    )
    assert one.configs is other.configs
    assert (one.resource_name, other.resource_name) == ("flights", "trains")
    assert [each.name for each in few.configs] == ["retention.ms"]
    assert absent.configs == []


def test_synonyms_and_documentation_only_when_asked():
    (bare,) = describe((TOPIC, "flights", "retention.ms"))
    assert (bare.configs[0].synonyms, bare.configs[0].documentation) == ([], None)
    (full,) = describe(
        (TOPIC, "flights", "max.message.bytes"), include_synonyms=True, include_documentation=True
    )
    assert full.configs[0].synonyms[0].name == "message.max.bytes"
    assert full.configs[0].documentation.endswith(".")


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        ((TOPIC, "nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        ((TOPIC, ""), ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        ((TOPIC, "a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b'"),
        (
            (BROKER, "2"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        ((BROKER, "x"), ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        ((BROKER_LOGGER, ""), ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (
            (BROKER_LOGGER, "2"),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 but received 2",
        ),
        ((CLIENT_METRICS, ""), ErrorCode.INVALID_REQUEST, "must not be empty"),
        ((GROUP, ""), ErrorCode.INVALID_REQUEST, "must not be empty"),
        ((0, "x"), ErrorCode.INVALID_REQUEST, "not described here"),
    ],
)
def test_refusals_are_kafka_s(resource, code, message):
    (result,) = describe(resource)
    assert result.error_code == code
    assert message in result.error_message
    assert result.configs == []


def test_a_broker_is_described_by_its_id_and_the_cluster_by_the_empty_name():
    broker, cluster, loggers = describe((BROKER, "1"), (BROKER, ""), (BROKER_LOGGER, "1"))
    assert len(broker.configs) > 300
    assert (cluster.error_code, cluster.configs) == (ErrorCode.NONE, [])
    assert (loggers.error_code, loggers.configs) == (ErrorCode.NONE, [])


def test_refused_resources_come_last():
    hidden = Deny((ResourceType.TOPIC, "flights"), (ResourceType.CLUSTER, "kafka-cluster"))
    results = describe((TOPIC, "flights"), (BROKER, "1"), (TOPIC, "nope"), authorizer=hidden)
    assert [each.resource_name for each in results] == ["nope", "flights", "1"]
    assert [each.error_code for each in results[1:]] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]


@pytest.mark.parametrize("version", HANDLER.versions)
def test_the_answer_fits_every_version(version):
    results = describe(
        (BROKER, "1"),
        (TOPIC, "flights"),
        (TOPIC, "nope"),
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    wire = b"".join(encode(DescribeConfigsResponse(results=results), version))
    again = decode(DescribeConfigsResponse, wire, version)
    assert [len(each.configs) for each in again.results] == [len(each.configs) for each in results]
    assert again.results[1].configs[0].synonyms == results[1].configs[0].synonyms


def test_the_wildcard_of_throttled_replicas_is_explained():
    [topic] = describe((TOPIC, "flights"), include_documentation=True)
    told = {each.name: each.documentation for each in topic.configs}
    for name in ("leader", "follower"):
        sentence = told[f"{name}.replication.throttled.replicas"]
        assert "* for all replicas of the topic" in sentence
        assert "PARTITION:BROKER" in sentence
