"""The effective settings of a topic, and the same in the log's own units."""

from __future__ import annotations

import pytest

from anabranch.core.log.config import LogConfig
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import (
    TopicConfig,
    effective_topic_config,
    log_config,
    topic_defaults,
)

HOUR_MS = 3_600_000


class OneTopic:
    """An image with settings for one topic."""

    def __init__(self, name, configs):
        self.name, self.configs = name, configs

    def config(self, resource_type, name):
        return self.configs if (resource_type, name) == (2, self.name) else {}


def test_defaults_are_kafka_s():
    topic = topic_defaults(BrokerConfig.of())
    assert topic.segment_bytes == 1 << 30
    assert topic.segment_ms == topic.retention_ms == 168 * HOUR_MS
    assert topic.max_message_bytes == 1_048_588
    assert topic.flush_messages == topic.flush_ms == 2**63 - 1
    assert topic.cleanup_policy == ("delete",)
    assert topic.min_insync_replicas == 1


def test_the_log_s_defaults_are_those_of_the_settings():
    broker = BrokerConfig.of()
    assert log_config(topic_defaults(broker), broker) == LogConfig()


@pytest.mark.parametrize(
    ("static", "attribute", "value"),
    [
        ({"log.retention.ms": "5", "log.retention.hours": "1"}, "retention_ms", 5),
        ({"log.retention.minutes": "2", "log.retention.hours": "1"}, "retention_ms", 120_000),
        ({"log.retention.hours": "1"}, "retention_ms", HOUR_MS),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.roll.ms": "9", "log.roll.hours": "1"}, "segment_ms", 9),
        ({"log.roll.hours": "1"}, "segment_ms", HOUR_MS),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", HOUR_MS),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush_ms", 7),
        ({"log.flush.interval.ms": "6", "log.flush.scheduler.interval.ms": "7"}, "flush_ms", 6),
        ({"log.flush.interval.messages": "1"}, "flush_messages", 1),
        ({"message.max.bytes": "99"}, "max_message_bytes", 99),
        ({"unclean.leader.election.enable": "true"}, "unclean_leader_election_enable", True),
    ],
)
def test_what_a_topic_does_not_say_the_broker_says(static, attribute, value):
    assert getattr(topic_defaults(BrokerConfig.of(static)), attribute) == value


def test_a_topic_s_own_settings_go_first():
    broker = BrokerConfig.of({"log.retention.ms": "5"})
    image = OneTopic("a", {"retention.ms": "7", "min.insync.replicas": "2"})
    topic = effective_topic_config(image, "a", broker)
    assert (topic.retention_ms, topic.min_insync_replicas) == (7, 2)
    assert effective_topic_config(image, "b", broker) is topic_defaults(broker)


def test_a_text_of_another_version_counts_as_not_set():
    topic = TopicConfig.of({"segment.bytes": "14", "gone": "1"}, BrokerConfig.of())
    assert topic == topic_defaults(BrokerConfig.of())


def test_equal_settings_give_the_same_log_config():
    broker = BrokerConfig.of({"producer.id.expiration.ms": "3"})
    first = log_config(TopicConfig.of({"flush.messages": "1"}, broker), broker)
    second = log_config(TopicConfig.of({"flush.messages": "1"}, broker), broker)
    assert first is second
    assert first.flush_interval_messages == 1
    assert first.producer_id_expiration_ms == 3
