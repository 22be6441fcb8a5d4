"""Quotas, metrics and client telemetry.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    CLASS,
    CLUSTER_WIDE,
    IN_FORCE,
    INT,
    LIST,
    LONG,
    LOW,
    STRING,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
)

# fmt: off
QUOTAS = (
    row("alter.log.dirs.replication.quota.window.num",
        "Samples kept for the quota on moves between folders.",
        INT, "11", LOW, at_least(1)),
    row("alter.log.dirs.replication.quota.window.size.seconds",
        "Length of a sample for the quota on moves between folders.",
        INT, "1", LOW, at_least(1)),
    row("client.quota.callback.class", "Java class that decides client quotas in Kafka.",
        CLASS, None, LOW),
    row("controller.quota.window.num", "Samples kept for the quota on topic changes.",
        INT, "11", LOW, at_least(1), IN_FORCE),
    row("controller.quota.window.size.seconds",
        "Length of a sample for the quota on topic changes.",
        INT, "1", LOW, at_least(1), IN_FORCE),
    row("kafka.metrics.polling.interval.secs",
        "How often Kafka's older metrics reporters are asked.",
        INT, "10", LOW, at_least(1)),
    row("kafka.metrics.reporters", "Java classes of Kafka's older metrics reporters.",
        LIST, "", LOW),
    row("metric.reporters",
        "Java classes that report metrics in Kafka; here metrics are on the HTTP port.",
        LIST, "org.apache.kafka.common.metrics.JmxReporter", LOW, CLUSTER_WIDE),
    row("metrics.num.samples", "Samples kept for a windowed metric.",
        INT, "2", LOW, at_least(1)),
    row("metrics.recording.level", "How detailed metrics are in Kafka: INFO, DEBUG or TRACE.",
        STRING, "INFO", LOW),
    row("metrics.sample.window.ms", "Length of a sample for a windowed metric.",
        LONG, "30000", LOW, at_least(1)),
    row("quota.window.num", "Samples kept for client quotas.",
        INT, "11", LOW, at_least(1), IN_FORCE),
    row("quota.window.size.seconds", "Length of a sample for client quotas.",
        INT, "1", LOW, at_least(1), IN_FORCE),
    row("replication.quota.window.num", "Samples kept for replication quotas.",
        INT, "11", LOW, at_least(1), IN_FORCE),
    row("replication.quota.window.size.seconds", "Length of a sample for replication quotas.",
        INT, "1", LOW, at_least(1), IN_FORCE),
    row("telemetry.max.bytes", "Largest metrics push of a client (KIP-714).",
        INT, "1048576", LOW, at_least(1)),
)
# fmt: on
