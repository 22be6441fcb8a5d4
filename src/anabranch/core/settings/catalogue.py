"""Every setting by name, with the settings that stand in for it when it is not set.

Source: Kafka 4.1.0's `ServerTopicConfigSynonyms` for topic to broker names, and the broker settings
that exist in several units. What it is not: it holds no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.core.settings.setting import Scope, Setting
from anabranch.core.settings.tables import (
    cleaner,
    diskless,
    groups,
    kraft,
    log,
    network,
    node,
    ours,
    quotas,
    remote,
    replication,
    sasl,
    security,
    share,
    topic,
    topics,
    transactions,
)

UNITS: Mapping[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Families of broker settings that mean the same in several units, the strongest first."""

TOPIC_TO_BROKER: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "ignore.rack.assignment": "ignore.rack.assignment",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "replica.placer.class.name": "replica.placer.class.name",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker setting that is a topic setting's default."""


def family_of(name: str) -> tuple[str, ...]:
    """The settings that may give this broker setting's value, the strongest first."""
    for family in UNITS.values():
        if name in family and name != "log.flush.scheduler.interval.ms":
            return family
    return (name,)


def _by_name(tables: Iterable[Iterable[Setting]]) -> dict[str, Setting]:
    return {setting.name: setting for table in tables for setting in table}


def _broker_settings() -> dict[str, Setting]:
    settings = _by_name(
        (
            node.NODE,
            ours.OWN,
            diskless.DISKLESS,
            network.NETWORK,
            log.LOG,
            cleaner.CLEANER,
            topics.TOPICS,
            replication.REPLICATION,
            kraft.KRAFT,
            groups.GROUPS,
            share.SHARE,
            transactions.TRANSACTIONS,
            quotas.QUOTAS,
            remote.REMOTE,
            security.SECURITY,
            sasl.SASL,
        )
    )
    return {
        name: msgspec.structs.replace(setting, synonyms=family_of(name))
        for name, setting in sorted(settings.items())
    }


def _topic_settings() -> dict[str, Setting]:
    def with_synonyms(setting: Setting) -> Setting:
        broker_name = TOPIC_TO_BROKER.get(setting.name)
        synonyms = () if broker_name is None else family_of(broker_name)
        return msgspec.structs.replace(setting, scope=Scope.TOPIC, synonyms=synonyms)

    return {setting.name: with_synonyms(setting) for setting in (*topic.TOPIC, *diskless.TOPIC)}


BROKER_SETTINGS: Mapping[str, Setting] = _broker_settings()
TOPIC_SETTINGS: Mapping[str, Setting] = _topic_settings()

ALIASES: Mapping[str, str] = {
    "log.recovery.threads.per.data.dir": "num.recovery.threads.per.data.dir",
}
"""Names that people write for a setting: taken as the setting, with a warning that names it."""

NEVER_EXISTED: Mapping[str, str] = {
    "unclean.shutdown.recovery.enable": (
        "this setting does not exist in Kafka and has no effect: a node always checks its logs "
        "after an unclean stop; remove the line"
    ),
}
"""Names that documents mention although no broker ever knew them, with what to do."""

WITHOUT_EFFECT: Mapping[str, str] = {
    "transaction.two.phase.commit.enable": (
        "two-phase commit (KIP-939) is not supported, and producers that ask for it are refused; "
        "remove the line"
    ),
}
"""Settings of Kafka's that a node does not obey and somebody relies on, with what to do."""
