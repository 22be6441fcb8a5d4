"""Transactions and producer ids.

Names, types, defaults, limits and scopes are those of Kafka 4.1.0's definitions.
"""

from __future__ import annotations

from anabranch.core.settings.notation import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    IN_FORCE,
    INT,
    LOW,
    SHORT,
    row,
)
from anabranch.core.settings.validators import (
    at_least,
)

# fmt: off
TRANSACTIONS = (
    row("add.partitions.to.txn.retry.backoff.max.ms",
        "Longest retry of adding a partition to a transaction on the broker.",
        INT, "100", HIGH, at_least(0), IN_FORCE),
    row("add.partitions.to.txn.retry.backoff.ms",
        "Pause between tries of adding a partition to a transaction.",
        INT, "20", HIGH, at_least(1), IN_FORCE),
    row("transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "How often overdue transactions are looked for.",
        INT, "10000", LOW, at_least(1), IN_FORCE),
    row("transaction.max.timeout.ms", "Longest transaction timeout that a producer may ask for.",
        INT, "900000", HIGH, at_least(1), IN_FORCE),
    row("transaction.partition.verification.enable",
        "Check that a partition joined the transaction before it takes records.",
        BOOLEAN, "true", LOW, CLUSTER_WIDE, IN_FORCE),
    row("transaction.remove.expired.transaction.cleanup.interval.ms",
        "How often unused transactional ids are looked for.",
        INT, "3600000", LOW, at_least(1), IN_FORCE),
    row("transaction.state.log.load.buffer.size",
        "Bytes read at a time when transactions are loaded.",
        INT, "5242880", HIGH, at_least(1), IN_FORCE),
    row("transaction.state.log.min.isr", "min.insync.replicas of the transaction topic.",
        INT, "2", HIGH, at_least(1), IN_FORCE),
    row("transaction.state.log.num.partitions", "Partitions of the transaction topic.",
        INT, "50", HIGH, at_least(1), IN_FORCE),
    row("transaction.state.log.replication.factor", "Replicas of the transaction topic.",
        SHORT, "3", HIGH, at_least(1), IN_FORCE),
    row("transaction.state.log.segment.bytes", "Segment size of the transaction topic.",
        INT, "104857600", HIGH, at_least(1), IN_FORCE),
    row("transaction.two.phase.commit.enable",
        "Whether an external coordinator can decide transactions (KIP-939).",
        BOOLEAN, "false", LOW),
    row("transactional.id.expiration.ms", "How long an unused transactional id is remembered.",
        INT, "604800000", HIGH, at_least(1), IN_FORCE),
)
# fmt: on
