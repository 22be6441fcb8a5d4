"""Followers, in-sync replicas, high watermark.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    CLUSTER_WIDE,
    HIGH,
    IN_FORCE,
    INT,
    LONG,
    MEDIUM,
    STRING,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
)

# fmt: off
REPLICATION = (
    row("delete.records.purgatory.purge.interval.requests",
        "Kafka's housekeeping step for waiting DeleteRecords.",
        INT, "1", MEDIUM),
    row("fetch.purgatory.purge.interval.requests", "Kafka's housekeeping step for waiting Fetches.",
        INT, "1000", MEDIUM),
    row("num.replica.alter.log.dirs.threads", "Threads that move replicas between folders.",
        INT, None, HIGH),
    row("num.replica.fetchers", "Connections over which a follower copies from one leader.",
        INT, "1", HIGH, IN_FORCE, CLUSTER_WIDE),
    row("producer.purgatory.purge.interval.requests",
        "Kafka's housekeeping step for waiting Produces.",
        INT, "1000", MEDIUM),
    row("replica.fetch.backoff.ms", "Longest wait of a follower after a partition's fetch failed.",
        INT, "1000", MEDIUM, IN_FORCE, at_least(0)),
    row("replica.fetch.max.bytes", "Bytes of one partition in a follower's fetch.",
        INT, "1048576", MEDIUM, IN_FORCE, at_least(0)),
    row("replica.fetch.min.bytes", "Bytes that a leader waits for before it answers a follower.",
        INT, "1", HIGH, IN_FORCE),
    row("replica.fetch.response.max.bytes",
        "Maximum size of a response to a follower; a leader with low latency is asked for 1 MiB.",
        INT, "10485760", MEDIUM, IN_FORCE, at_least(0)),
    row("replica.fetch.wait.max.ms", "Longest wait of a leader before it answers a follower.",
        INT, "500", HIGH, IN_FORCE),
    row("replica.high.watermark.checkpoint.interval.ms",
        "How often high watermarks are written to disk.",
        LONG, "5000", HIGH, IN_FORCE),
    row("replica.lag.time.max.ms", "A follower that lags for this long leaves the ISR.",
        LONG, "30000", HIGH, IN_FORCE),
    row("replica.selector.class",
        "Who serves consumers: the leader, or (RackAwareReplicaSelector) a replica in their rack.",
        STRING, None, MEDIUM, IN_FORCE),
    row("replica.socket.receive.buffer.bytes",
        "Kernel receive buffer of a follower's connection; unless given, the system sizes it.",
        INT, "65536", HIGH, IN_FORCE),
    row("replica.socket.timeout.ms", "Socket timeout of a follower's requests.",
        INT, "30000", HIGH, IN_FORCE),
    row("share.fetch.purgatory.purge.interval.requests",
        "Kafka's housekeeping step for waiting ShareFetches.",
        INT, "1000", MEDIUM),
)
# fmt: on
