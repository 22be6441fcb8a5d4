"""What new topics are like, and policies about topics and settings.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    IN_FORCE,
    INT,
    LOW,
    MEDIUM,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
)

# fmt: off
TOPICS = (
    row("alter.config.policy.class.name",
        "Java class that may refuse changes of settings in Kafka.",
        CLASS, None, LOW),
    row("auto.create.topics.enable", "Create a topic when a client asks for its metadata.",
        BOOLEAN, "true", HIGH, IN_FORCE),
    row("create.topic.policy.class.name", "Java class that may refuse new topics in Kafka.",
        CLASS, None, LOW),
    row("default.replication.factor", "Default replication factor of new topics.",
        INT, "1", MEDIUM, IN_FORCE),
    row("delete.topic.enable", "Whether topics can be deleted.",
        BOOLEAN, "true", HIGH, IN_FORCE),
    row("min.insync.replicas", "Default of the topic setting: replicas that acks=all needs.",
        INT, "1", HIGH, CLUSTER_WIDE, at_least(1), IN_FORCE),
    row("num.partitions", "Default number of partitions of new topics.",
        INT, "1", MEDIUM, at_least(1), IN_FORCE),
    row("unclean.leader.election.enable",
        "Default of the topic setting: whether a replica that may lack records can become leader.",
        BOOLEAN, "false", HIGH, CLUSTER_WIDE, IN_FORCE),
)
# fmt: on
