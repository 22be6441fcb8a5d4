"""The controllers and the metadata log.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    HIGH,
    IN_FORCE,
    INT,
    INTERNAL,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    row,
)
from anabranch.core.settings.validators import (
    SERVERS,
    VOTERS,
    at_least,
)

# fmt: off
KRAFT = (
    row("controller.performance.always.log.threshold.ms",
        "Controller events slower than this are logged.",
        LONG, "2000", MEDIUM, at_least(0), INTERNAL),
    row("controller.performance.sample.period.ms", "How often the controller logs its own speed.",
        LONG, "60000", MEDIUM, at_least(100), INTERNAL),
    row("controller.quorum.append.linger.ms",
        "How long a controller gathers records before it writes them.",
        INT, "25", MEDIUM, at_least(0)),
    row("controller.quorum.bootstrap.servers", "Addresses of controllers to connect to first, as "
        "host:port.",
        LIST, "", HIGH, SERVERS, IN_FORCE),
    row("controller.quorum.election.backoff.max.ms",
        "Longest pause between two elections in Kafka's quorum.",
        INT, "1000", HIGH, at_least(0)),
    row("controller.quorum.election.timeout.ms",
        "Silence of the leader before an election in Kafka's quorum.",
        INT, "1000", HIGH, at_least(0)),
    row("controller.quorum.fetch.timeout.ms",
        "Time without a fetch after which Kafka's quorum doubts its leader.",
        INT, "2000", HIGH, at_least(0)),
    row("controller.quorum.request.timeout.ms", "How long a controller request may take.",
        INT, "2000", MEDIUM, at_least(0)),
    row("controller.quorum.retry.backoff.ms", "Pause before a controller request is tried again.",
        INT, "20", LOW, at_least(0)),
    row("controller.quorum.voters",
        "Kafka's fixed quorum, as id@host:port; read to find controllers.",
        LIST, "", HIGH, VOTERS, IN_FORCE),
    row("internal.metadata.delete.delay.millis",
        "Delay of the deletion of old metadata segments, only for tests.",
        LONG, "60000", LOW, INTERNAL),
    row("internal.metadata.log.segment.bytes",
        "Metadata segment size without a lower bound, only for tests.",
        INT, None, LOW, INTERNAL),
    row("internal.metadata.max.batch.size.in.bytes",
        "Largest batch of the metadata log, only for tests.",
        INT, "8388608", LOW, INTERNAL),
    row("internal.metadata.max.fetch.size.in.bytes",
        "Largest fetch of the metadata log, only for tests.",
        INT, "8388608", LOW, INTERNAL),
    row("metadata.log.max.record.bytes.between.snapshots",
        "New metadata bytes after which a snapshot is made.",
        LONG, "20971520", HIGH, at_least(1), IN_FORCE),
    row("metadata.log.max.snapshot.interval.ms",
        "Longest time without a snapshot when there is something new; 0 is no limit.",
        LONG, "3600000", HIGH, at_least(0), IN_FORCE),
    row("metadata.log.segment.bytes", "Size at which a metadata segment is closed.",
        INT, "1073741824", HIGH, at_least(8388608), IN_FORCE),
    row("metadata.log.segment.ms", "Age at which a metadata segment is closed.",
        LONG, "604800000", HIGH),
    row("metadata.max.idle.interval.ms",
        "How often an idle controller appends a no-op record; 0 is never.",
        INT, "500", LOW, at_least(0)),
    row("metadata.max.retention.bytes", "Bytes of metadata segments and snapshots that are kept.",
        LONG, "104857600", HIGH),
    row("metadata.max.retention.ms", "Age up to which metadata segments and snapshots are kept.",
        LONG, "604800000", HIGH),
)
# fmt: on
