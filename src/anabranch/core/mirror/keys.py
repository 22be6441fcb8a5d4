"""The keys of an mm2.properties: which take effect, which do not and why, and their defaults.

What: tables of MirrorMaker 2's own keys, Connect's worker keys that a dedicated mirror's file may
have, and the keys of Kafka's clients that matter here. Names and defaults are those of Kafka 4.1.
Rule kept: a key that is in no table is named to the user, with the nearest one that is.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.mirror.filters import ALL, CONFIGS_EXCLUDED, GROUPS_EXCLUDED, TOPICS_EXCLUDED
from anabranch.core.mirror.policy import DEFAULT_POLICY

MOST_SECONDS = 365 * 24 * 3600


class Key(NamedTuple):
    """A key of a flow. `kind` is `text`, `true or false`, or a whole number's least value."""

    default: str
    kind: str | int = "text"


BOOLEAN = "true or false"
FLOW_KEYS: dict[str, Key] = {
    "enabled": Key("false", BOOLEAN),
    "topics": Key(ALL),
    "topics.exclude": Key(TOPICS_EXCLUDED),
    "groups": Key(ALL),
    "groups.exclude": Key(GROUPS_EXCLUDED),
    "config.properties.exclude": Key(CONFIGS_EXCLUDED),
    "use.defaults.from": Key("target"),
    "replication.factor": Key("2", -1),
    "replication.policy.class": Key(DEFAULT_POLICY),
    "replication.policy.separator": Key("."),
    "replication.policy.internal.topic.separator.enabled": Key("true", BOOLEAN),
    "refresh.topics.enabled": Key("true", BOOLEAN),
    "refresh.topics.interval.seconds": Key("600", 1),
    "refresh.groups.enabled": Key("true", BOOLEAN),
    "refresh.groups.interval.seconds": Key("600", 1),
    "sync.topic.configs.enabled": Key("true", BOOLEAN),
    "sync.topic.configs.interval.seconds": Key("600", 1),
    "sync.topic.acls.enabled": Key("true", BOOLEAN),
    "sync.topic.acls.interval.seconds": Key("600", 1),
    "emit.checkpoints.enabled": Key("true", BOOLEAN),
    "emit.checkpoints.interval.seconds": Key("60", 1),
    "sync.group.offsets.enabled": Key("false", BOOLEAN),
    "sync.group.offsets.interval.seconds": Key("60", 1),
    "sync.group.offsets.continuous": Key("false", BOOLEAN),
    "emit.heartbeats.enabled": Key("true", BOOLEAN),
    "emit.heartbeats.interval.seconds": Key("1", 1),
    "heartbeats.replication.enabled": Key("true", BOOLEAN),
    "heartbeats.topic.replication.factor": Key("3", -1),
    "checkpoints.topic.replication.factor": Key("3", -1),
    "emit.offset-syncs.enabled": Key("true", BOOLEAN),
    "offset-syncs.topic.replication.factor": Key("3", -1),
    "offset-syncs.topic.location": Key("source"),
    "offset.lag.max": Key("100", 0),
    "offset.storage.replication.factor": Key("3", -1),
    "offset.storage.partitions": Key("25", 1),
    "offset.flush.interval.ms": Key("1000", 1),
    "exactly.once.source.support": Key("disabled"),
    "tasks.max": Key("0", 0),
    "wave.seconds": Key("45", 1),
}
"""Key -> its default. `tasks.max` 0 is the number of Spark's cores; `offset.flush.interval.ms` is
Connect's, whose default is 60000. `wave.seconds` and `sync.group.offsets.continuous` are not
MirrorMaker 2's."""

CHOICES: dict[str, tuple[str, ...]] = {
    "use.defaults.from": ("source", "target"),
    "offset-syncs.topic.location": ("source", "target"),
    "exactly.once.source.support": ("disabled", "preparing", "enabled"),
}

_WORKER = "it belongs to a Connect worker, and no Connect runs here"
_CLASSES = "Java classes cannot be loaded here"
WITHOUT_EFFECT: dict[str, str] = {
    "admin.timeout.ms": "requests have limits of their own",
    "consumer.poll.timeout.ms": "fetches wait for fetch.max.wait.ms",
    "config.storage.replication.factor": _WORKER,
    "status.storage.replication.factor": _WORKER,
    "dedicated.mode.enable.internal.rest": _WORKER,
    "listeners": _WORKER,
    "rest.advertised.listener": _WORKER,
    "group.id": "waves of one Spark job share nothing by group",
    "plugin.path": _CLASSES,
    "metric.reporters": _CLASSES,
    "offset-syncs.topic.replication": "its name ends in .factor",
    "key.converter": "keys are bytes",
    "value.converter": "values are bytes",
    "header.converter": "headers are bytes",
}
"""Key -> why it has none; it is accepted, and told."""

REFUSED: dict[str, str] = {
    "topic.filter.class": "write topics and topics.exclude instead",
    "group.filter.class": "write groups and groups.exclude instead",
    "config.property.filter.class": "write config.properties.exclude instead",
    "forwarding.admin.class": "topics are created with Kafka's own requests",
}
"""Java classes other than MirrorMaker 2's own -> what to write instead."""
USUAL_CLASSES = "org.apache.kafka.connect.mirror.Default"
FORWARDING_ADMIN = "org.apache.kafka.clients.admin.ForwardingAdmin"

SHARED = frozenset({"bootstrap.servers", "security.protocol", "client.id", "client.dns.lookup"})
SHARED_PREFIXES = ("sasl.", "ssl.", "security.")
"""Keys of every client of a cluster."""
ROLES = ("consumer.", "producer.", "admin.")
ENDS = ("source.", "target.")

CLIENT_KEYS: dict[str, Key] = {
    "isolation.level": Key("read_uncommitted"),
    "auto.offset.reset": Key("earliest"),
    "fetch.max.bytes": Key(str(50 << 20), 1),
    "fetch.max.wait.ms": Key("500", 0),
    "fetch.min.bytes": Key("1", 0),
    "max.partition.fetch.bytes": Key(str(1 << 20), 1),
    "compression.type": Key(""),
    "max.request.size": Key("", 1024),
    "acks": Key("all"),
}
"""Keys of consumers and producers that take effect. Without `compression.type` a batch keeps its
codec; without `max.request.size` the largest batch is what the target's topic takes."""
CLIENT_CHOICES: dict[str, tuple[str, ...]] = {
    "isolation.level": ("read_uncommitted", "read_committed"),
    "auto.offset.reset": ("earliest", "latest"),
    "compression.type": ("", "none", "gzip", "snappy", "lz4", "zstd"),
    "acks": ("all", "-1"),
}
