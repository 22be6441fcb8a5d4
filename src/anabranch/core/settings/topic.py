"""The settings of one topic as they are in effect: its own values over the broker's.

A `TopicConfig` is a frozen struct with every topic setting as a typed attribute. Topics without
settings of their own share the broker's one. `log_config` is the same in the log's own units.

Source: Kafka 4.1's `KafkaConfig.extractLogConfigMap` (which broker setting is whose default, and
that hours and minutes stand in for milliseconds).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from anabranch.core.log.config import LogConfig
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.catalogue import TOPIC_SETTINGS, TOPIC_TO_BROKER
from anabranch.core.settings.setting import ConfigFault, attribute_of, parse

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
TOPIC_RESOURCE = 2
"""ConfigResource.Type.TOPIC on the wire and in ConfigRecord."""


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Every topic setting of Kafka 4.1, parsed; attributes are the names with underscores."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    confluent_placement_constraints: str
    delete_retention_ms: int
    diskless_enable: bool
    diskless_migration_phase: str
    diskless_start_offsets: str
    diskless_tiering_age_ms: int
    diskless_tiering_min_segment_bytes: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    ignore_rack_assignment: bool
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    replica_placer_class_name: str
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """A topic's own texts over the broker's values.

        A text that does not parse (a metadata log written by another version) counts as not set.
        """
        own: dict[str, Any] = {}
        for name, text in overrides.items():
            setting = TOPIC_SETTINGS.get(name)
            if setting is None:
                continue
            try:
                own[setting.attribute] = parse(setting, text)
            except ConfigFault:
                continue
        return replace(topic_defaults(broker), **own)


def broker_default(name: str, broker: BrokerConfig) -> Any:
    """What a topic has for `name` when it sets nothing itself."""
    if name in _IN_UNITS:
        return _IN_UNITS[name](broker)
    if name in TOPIC_TO_BROKER:
        return broker[TOPIC_TO_BROKER[name]]
    setting = TOPIC_SETTINGS[name]
    return None if setting.default is None else parse(setting, setting.default)


def effective_topic_config(image: MetadataImage, topic: str, broker: BrokerConfig) -> TopicConfig:
    """The configuration of `topic` in this image; shared by all topics that set nothing."""
    overrides = image.config(TOPIC_RESOURCE, topic)
    return (
        _overriding(frozenset(overrides.items()), broker) if overrides else topic_defaults(broker)
    )


@lru_cache(maxsize=16)
def topic_defaults(broker: BrokerConfig) -> TopicConfig:
    """What a topic without settings of its own has; one object for all of them."""
    return TopicConfig(
        **{
            setting.attribute: broker_default(name, broker)
            for name, setting in TOPIC_SETTINGS.items()
        }
    )


@lru_cache(maxsize=1024)
def _overriding(overrides: frozenset[tuple[str, str]], broker: BrokerConfig) -> TopicConfig:
    """Asked for at each change of a partition: parsed once."""
    return TopicConfig.of(dict(overrides), broker)


@lru_cache(maxsize=1024)
def _log_config(topic: TopicConfig, producer_id_expiration_ms: int) -> LogConfig:
    return LogConfig(
        segment_bytes=topic.internal_segment_bytes or topic.segment_bytes,
        segment_ms=_roll_by_ms(topic),
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        max_message_bytes=topic.max_message_bytes,
        message_timestamp_type=topic.message_timestamp_type,
        message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        compression_type=topic.compression_type,
        compression_gzip_level=topic.compression_gzip_level,
        compression_lz4_level=topic.compression_lz4_level,
        compression_zstd_level=topic.compression_zstd_level,
        flush_interval_messages=topic.flush_messages,
        flush_interval_ms=topic.flush_ms,
        cleanup_policy=topic.cleanup_policy,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        producer_id_expiration_ms=producer_id_expiration_ms,
        preallocate=topic.preallocate,
        has_remote=topic.remote_storage_enable,
    )


def _roll_by_ms(topic: TopicConfig) -> int:
    """`segment.ms`; sooner where `max.compaction.lag.ms` wants older records compacted."""
    if "compact" not in topic.cleanup_policy:
        return topic.segment_ms
    return min(topic.segment_ms, topic.max_compaction_lag_ms)


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """What the log of a partition needs to know; equal settings give the same object."""
    return _log_config(topic, broker.producer_id_expiration_ms)


def _retention_ms(broker: BrokerConfig) -> int:
    if broker.log_retention_ms is not None:
        retention_ms = broker.log_retention_ms
    elif broker.log_retention_minutes is not None:
        retention_ms = broker.log_retention_minutes * MINUTE_MS
    else:
        retention_ms = broker.log_retention_hours * HOUR_MS
    return max(retention_ms, -1)


def _roll_ms(broker: BrokerConfig) -> int:
    if broker.log_roll_ms is not None:
        return broker.log_roll_ms
    return broker.log_roll_hours * HOUR_MS


def _roll_jitter_ms(broker: BrokerConfig) -> int:
    if broker.log_roll_jitter_ms is not None:
        return broker.log_roll_jitter_ms
    return broker.log_roll_jitter_hours * HOUR_MS


def _flush_ms(broker: BrokerConfig) -> int:
    if broker.log_flush_interval_ms is not None:
        return broker.log_flush_interval_ms
    return broker.log_flush_scheduler_interval_ms


_IN_UNITS = {
    "retention.ms": _retention_ms,
    "segment.ms": _roll_ms,
    "segment.jitter.ms": _roll_jitter_ms,
    "flush.ms": _flush_ms,
}
"""Defaults that the broker may say in several units."""

assert {setting.attribute for setting in TOPIC_SETTINGS.values()} == set(
    TopicConfig.__struct_fields__
), sorted(attribute_of(name) for name in TOPIC_SETTINGS)
