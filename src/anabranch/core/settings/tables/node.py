"""The node itself: identity, roles, folders, life cycle and what Anabranch adds.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    IN_FORCE,
    INT,
    INTERNAL,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    REQUIRED,
    STRING,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
    one_of,
)

# fmt: off
NODE = (
    row("auto.leader.rebalance.enable",
        "Whether leadership periodically returns to preferred replicas.",
        BOOLEAN, "true", HIGH, IN_FORCE),
    row("background.threads", "Size of Kafka's pool for chores; a node here has one event loop.",
        INT, "10", HIGH, CLUSTER_WIDE, at_least(1)),
    row("broker.heartbeat.interval.ms", "Interval of a broker's heartbeats.",
        INT, "2000", MEDIUM, IN_FORCE),
    row("broker.id", "Older name of node.id.",
        INT, "-1", HIGH, IN_FORCE),
    row("broker.rack", "The rack or zone of this broker; replicas are distributed over racks.",
        STRING, None, MEDIUM, IN_FORCE),
    row("broker.session.timeout.ms", "Silence after which the controller fences a broker.",
        INT, "9000", MEDIUM, IN_FORCE),
    row("controlled.shutdown.enable", "Whether a node hands over its leaderships before it stops.",
        BOOLEAN, "true", MEDIUM),
    row("initial.broker.registration.timeout.ms",
        "How long a starting broker tries to register before it gives up.",
        INT, "60000", MEDIUM, IN_FORCE),
    row("leader.imbalance.check.interval.seconds",
        "How often leadership is compared with the preferred replicas.",
        LONG, "300", HIGH, at_least(1), IN_FORCE),
    row("log.dir", "One folder for data; used when log.dirs is not set.",
        STRING, "/tmp/kafka-logs", HIGH, IN_FORCE),
    row("log.dirs", "Folders for data, separated by commas.",
        STRING, None, HIGH, IN_FORCE),
    row("log.dir.failure.timeout.ms",
        "A broker stops when it cannot report a failed folder for this long.",
        LONG, "30000", LOW, at_least(1), IN_FORCE),
    row("metadata.log.dir", "Folder of the metadata log; the first of log.dirs when not set.",
        STRING, None, HIGH, IN_FORCE),
    row("node.id", "Id of this node, unique in the cluster.",
        INT, None, HIGH, at_least(0), REQUIRED, IN_FORCE),
    row("num.io.threads", "Size of Kafka's request pool; a node here has one event loop.",
        INT, "8", HIGH, CLUSTER_WIDE, at_least(1)),
    row("num.network.threads", "Size of Kafka's socket pool; a node here has one event loop.",
        INT, "3", HIGH, CLUSTER_WIDE, at_least(1)),
    row("num.recovery.threads.per.data.dir", "Threads a folder that check logs at start.",
        INT, "2", HIGH, CLUSTER_WIDE, at_least(1)),
    row("process.roles", "Roles of this node: broker, controller, or both.",
        LIST, None, HIGH, one_of("broker", "controller"), REQUIRED, IN_FORCE),
    row("server.max.startup.time.ms", "Longest accepted start, only for tests.",
        LONG, LONG_MAX, MEDIUM, at_least(0), INTERNAL),
    row("unclean.leader.election.interval.ms",
        "How often partitions without a leader are checked for unclean election.",
        LONG, "300000", MEDIUM, at_least(1), INTERNAL, IN_FORCE),
    row("unstable.api.versions.enable", "Serve request versions that are not released yet.",
        BOOLEAN, "false", HIGH, INTERNAL),
    row("unstable.feature.versions.enable", "Allow feature levels that are not released yet.",
        BOOLEAN, "false", HIGH, INTERNAL),
)
# fmt: on
