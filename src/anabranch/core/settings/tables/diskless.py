"""Settings of diskless topics: Anabranch's own, with the names that document 003 and its peers use.

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
    MEDIUM,
    OURS,
    PASSWORD,
    row,
)
from anabranch.core.settings.validators import LISTENER_RACKS, at_least

# fmt: off
DISKLESS = (
    row("diskless.client.az.listener.map",
        "Racks of clients by listener, LISTENER:RACK,…; a client id with diskless_az= comes first.",
        LIST, "", MEDIUM, LISTENER_RACKS, OURS, IN_FORCE),
    row("diskless.coordinator.url",
        "Where the order of diskless records is kept: sqlite:///FILE or postgresql://HOST/DATABASE.",
        PASSWORD, "", HIGH, OURS, IN_FORCE),
    row("diskless.fetch.cache.max.bytes",
        "Bytes of diskless records that a broker keeps in memory for readers.",
        LONG, "134217728", MEDIUM, at_least(1048576), OURS, IN_FORCE),
    row("diskless.managed.rf.auto.reconcile",
        "Say false to only report diskless partitions that are not as the racks want them.",
        BOOLEAN, "true", MEDIUM, CLUSTER_WIDE, OURS, IN_FORCE),
    row("diskless.managed.rf.max.moves.per.sec",
        "Changes of diskless replicas a second that the controller makes by itself.",
        INT, "5000", MEDIUM, CLUSTER_WIDE, at_least(1), OURS, IN_FORCE),
    row("diskless.managed.rf.rack.unavailable.threshold.ms",
        "How long every broker of a rack is unreachable before its diskless replicas go.",
        LONG, "300000", MEDIUM, at_least(0), OURS, IN_FORCE),
    row("diskless.produce.buffer.max.bytes",
        "Size at which a broker's buffer of diskless records becomes an object.",
        INT, "8388608", MEDIUM, at_least(1024), OURS, IN_FORCE),
    row("diskless.produce.commit.interval.ms",
        "Least time between two objects of a broker that are not full; unset: 250, on disks 0.",
        INT, None, MEDIUM, at_least(0), OURS, IN_FORCE),
    row("diskless.storage.system.enable",
        "Say true to allow diskless topics; each node then needs the two URLs.",
        BOOLEAN, "false", HIGH, OURS, IN_FORCE),
    row("diskless.storage.url",
        "Where diskless records are stored: file:///FOLDER, s3://BUCKET/PREFIX, gs:// or az://.",
        PASSWORD, "", HIGH, OURS, IN_FORCE),
    row("log.diskless.enable",
        "Say true to have new topics diskless, but for internal and compacted ones.",
        BOOLEAN, "false", MEDIUM, CLUSTER_WIDE, OURS, IN_FORCE),
)
TOPIC = (
    row("diskless.enable",
        "Keep the records in object storage, and no copies on brokers; set at creation alone.",
        BOOLEAN, "false", HIGH, OURS, IN_FORCE),
)
# fmt: on
