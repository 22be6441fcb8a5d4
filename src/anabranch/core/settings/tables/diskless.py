"""Settings of diskless topics: Anabranch's own, with the names that other diskless brokers use.

`diskless.enable` has no default among the broker's settings, although `log.diskless.enable` is one:
that is written into a topic's settings when it is created, and later changes nothing. The two URLs
may hold keys and passwords, so they are sensitive: no client is told them.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    IN_FORCE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    OURS,
    PASSWORD,
    STRING,
    row,
)
from anabranch.core.settings.validators import LISTENER_RACKS, at_least, between

MOST_BUFFERED = 1 << 30
"""Half of the largest object, which has an index beside what was buffered."""

# fmt: off
DISKLESS = (
    row("diskless.client.az.listener.map",
        "Racks of clients by listener, LISTENER:RACK,…; a client id with diskless_az= comes first.",
        LIST, "", MEDIUM, LISTENER_RACKS, OURS, IN_FORCE),
    row("diskless.coordinator.url",
        "Database for the order of diskless records: sqlite:///FILE or postgresql://HOST/DATABASE.",
        PASSWORD, "", HIGH, OURS, IN_FORCE),
    row("diskless.fetch.cache.max.bytes",
        "Size of a broker's cache of diskless records.",
        LONG, "134217728", MEDIUM, at_least(1048576), OURS, IN_FORCE),
    row("diskless.managed.rf.auto.reconcile",
        "Set to false to only report diskless partitions that do not have one replica in each "
        "rack.",
        BOOLEAN, "true", MEDIUM, CLUSTER_WIDE, OURS, IN_FORCE),
    row("diskless.managed.rf.max.moves.per.sec",
        "Maximum number of changes of diskless replicas that the controller makes in a second.",
        INT, "5000", MEDIUM, CLUSTER_WIDE, at_least(1), OURS, IN_FORCE),
    row("diskless.managed.rf.rack.unavailable.threshold.ms",
        "How long all brokers of a rack must be unreachable before its diskless replicas are "
        "removed.",
        LONG, "300000", MEDIUM, at_least(0), OURS, IN_FORCE),
    row("diskless.produce.buffer.max.bytes",
        "Size at which a broker's buffer of diskless records becomes an object.",
        INT, "8388608", MEDIUM, between(1024, MOST_BUFFERED), OURS, IN_FORCE),
    row("diskless.produce.commit.interval.ms",
        "Least time between two objects of a broker that are not full; unset: 250, on disks 0.",
        INT, None, MEDIUM, at_least(0), OURS, IN_FORCE),
    row("diskless.producer.id.expiration.ms",
        "Silence after which the coordinator forgets a producer; its next batch waits 10 s then.",
        LONG, "604800000", LOW, at_least(1), OURS, IN_FORCE),
    row("diskless.storage.system.enable",
        "Set to true to allow diskless topics; each node then needs diskless.storage.url.",
        BOOLEAN, "false", HIGH, OURS, IN_FORCE),
    row("diskless.storage.url",
        "Where diskless records are stored: file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://.",
        PASSWORD, "", HIGH, OURS, IN_FORCE),
    row("log.diskless.enable",
        "Set to true to make new topics diskless, except internal and compacted ones.",
        BOOLEAN, "false", MEDIUM, CLUSTER_WIDE, OURS, IN_FORCE),
)
TOPIC = (
    row("diskless.enable",
        "Keep records in object storage instead of on brokers; for an existing topic: migrate it.",
        BOOLEAN, "false", HIGH, OURS, IN_FORCE),
    row("diskless.migration.phase",
        "Written by the controller while a topic becomes diskless: preparing or sealing.",
        STRING, "", LOW, OURS, IN_FORCE),
    row("diskless.start.offsets",
        "Written by the controller when a classic topic becomes diskless: the end of each log.",
        STRING, "", LOW, OURS, IN_FORCE),
    row("diskless.tiering.age.ms",
        "Age at which a tiering job moves records of a diskless topic to segments; -1: never.",
        LONG, "3600000", MEDIUM, at_least(-1), OURS, IN_FORCE),
    row("diskless.tiering.min.segment.bytes",
        "Least size of such a segment; a partition with many small batches does not wait for it.",
        INT, "1048576", MEDIUM, at_least(1), OURS, IN_FORCE),
)
# fmt: on
