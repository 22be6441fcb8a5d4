"""DescribeConfigs' values, sources and synonyms, compared with what Kafka 4.1.0 answered."""

from __future__ import annotations

import kafka_facts
import pytest

from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.describe import (
    Source,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)

ANSWERS = kafka_facts.rows("kafka_4_1_0_describe_configs.tsv")
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:19470,CONTROLLER://127.0.0.1:19471",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:19470",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:19471",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "/var/kafka",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
BROKER = BrokerConfig.of(
    STATIC,
    dynamic_broker={"log.retention.ms": "777000"},
    dynamic_default={
        "message.max.bytes": "1000000",
        "log.segment.bytes": "2000000",
        "min.insync.replicas": "1",
    },
)
OWN = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "segment.bytes": " 2097152 "}
OURS = {
    "broker": lambda: describe_broker(BROKER, None),
    "default": lambda: describe_cluster_default(BROKER, None),
    "plain": lambda: describe_topic({"cleanup.policy": "delete,compact"}, BROKER, None),
    "own": lambda: describe_topic(OWN, BROKER, None),
}


def cells(result):
    """One result as a row of the data file."""

    def shown(value):
        return "\\N" if value is None else value

    return [
        result.name,
        shown(result.value),
        str(result.read_only).lower(),
        str(int(result.config_source)),
        str(result.is_sensitive).lower(),
        str(int(result.config_type)),
        ";".join(f"{each.name}={shown(each.value)}@{int(each.source)}" for each in result.synonyms),
    ]


@pytest.mark.parametrize("resource", sorted(OURS))
def test_answers_are_kafka_s(resource):
    kafka = {row[1]: row[1:] for row in ANSWERS if row[0] == resource}
    ours = {result.name: cells(result) for result in OURS[resource]()}
    assert {name: ours[name] for name in kafka} == kafka


def test_settings_of_our_own_are_described_too():
    names = {result.name for result in OURS["broker"]()}
    assert {"metadata.store.url", "http.listener"} <= names


def test_keys_choose_and_no_keys_mean_all():
    assert [result.name for result in describe_topic({}, BROKER, ["retention.ms", "foo"])] == [
        "retention.ms"
    ]
    assert len(describe_topic({}, BROKER, [])) == len(describe_topic({}, BROKER, None)) == 33


def test_passwords_are_never_shown():
    broker = BrokerConfig.of({"ssl.key.password": "geheim", "my.secret": "geheim"})
    described = {result.name: result for result in describe_broker(broker, None)}
    assert described["ssl.key.password"].is_sensitive
    assert described["my.secret"].is_sensitive
    assert "geheim" not in repr(described)


def test_a_name_that_is_no_setting_says_where_it_is_set():
    broker = BrokerConfig.of({"a": "1", "b": "1", "c": "1"}).with_dynamic({"a": "2"}, {"b": "3"})
    found = {each.name: each.config_source for each in describe_broker(broker, ["a", "b", "c"])}
    assert found == {
        "a": Source.DYNAMIC_BROKER, "b": Source.DYNAMIC_DEFAULT_BROKER, "c": Source.STATIC_BROKER,
    }  # fmt: skip


def test_urls_that_may_hold_keys_are_never_shown():
    urls = {
        "diskless.storage.url": "s3://bucket?secret_access_key=geheim",
        "remote.storage.url": "s3://bucket?secret_access_key=geheim",
        "diskless.coordinator.url": "postgresql://user:geheim@host/database",
        "metadata.store.url": "postgresql://user:geheim@host/database",
    }
    described = {each.name: each for each in describe_broker(BrokerConfig.of(urls), list(urls))}
    assert all(described[name].is_sensitive for name in urls)
    assert "geheim" not in repr(described)


def test_every_setting_comes_with_its_sentence():
    assert all(result.documentation for result in OURS["broker"]())
