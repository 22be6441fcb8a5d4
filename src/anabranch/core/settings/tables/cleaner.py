"""Compaction.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    IN_FORCE,
    INT,
    LONG,
    LONG_MAX,
    MEDIUM,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
    between,
)

# fmt: off
CLEANER = (
    row("log.cleaner.backoff.ms", "Sleep when no log needs compacting.",
        LONG, "15000", MEDIUM, CLUSTER_WIDE, at_least(0), IN_FORCE),
    row("log.cleaner.dedupe.buffer.size", "Memory for the key maps of all cleaner threads.",
        LONG, "134217728", MEDIUM, CLUSTER_WIDE, IN_FORCE),
    row("log.cleaner.delete.retention.ms", "Default of delete.retention.ms.",
        LONG, "86400000", MEDIUM, CLUSTER_WIDE, at_least(0), IN_FORCE),
    row("log.cleaner.enable", "Whether compaction runs at all.",
        BOOLEAN, "true", MEDIUM, IN_FORCE),
    row("log.cleaner.io.buffer.load.factor", "How full a key map may get.",
        DOUBLE, "0.9", MEDIUM, CLUSTER_WIDE, IN_FORCE),
    row("log.cleaner.io.buffer.size", "Memory for the copy buffers of all cleaner threads.",
        INT, "524288", MEDIUM, CLUSTER_WIDE, at_least(0), IN_FORCE),
    row("log.cleaner.io.max.bytes.per.second", "Bytes a second that compaction may read and write.",
        DOUBLE, "1.7976931348623157E308", MEDIUM, CLUSTER_WIDE, IN_FORCE),
    row("log.cleaner.max.compaction.lag.ms", "Default of max.compaction.lag.ms.",
        LONG, LONG_MAX, MEDIUM, CLUSTER_WIDE, at_least(1), IN_FORCE),
    row("log.cleaner.min.cleanable.ratio", "Default of min.cleanable.dirty.ratio.",
        DOUBLE, "0.5", MEDIUM, CLUSTER_WIDE, between(0, 1), IN_FORCE),
    row("log.cleaner.min.compaction.lag.ms", "Default of min.compaction.lag.ms.",
        LONG, "0", MEDIUM, CLUSTER_WIDE, at_least(0), IN_FORCE),
    row("log.cleaner.threads", "Threads that compact.",
        INT, "1", MEDIUM, CLUSTER_WIDE, at_least(0), IN_FORCE),
)
# fmt: on
