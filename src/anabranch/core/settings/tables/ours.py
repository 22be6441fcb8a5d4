"""Settings that Kafka 4.1's definitions lack: Anabranch's own, some of Kafka 3 that are accepted,
those of Kafka's StandardAuthorizer,
and the rates of replication throttles, which Kafka takes for a broker without defining them.

The URL of the metadata store may hold a password, so it is sensitive: no client is told it.
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
    LONG_MAX,
    LOW,
    MEDIUM,
    OURS,
    PASSWORD,
    PER_BROKER,
    STRING,
    row,
)
from anabranch.core.settings.validators import CORDONED, PLACER, at_least, between, one_of

# fmt: off
OWN = (
    row("allow.everyone.if.no.acl.found",
        "With an authorizer: whether everybody may use a resource that no ACL is about.",
        BOOLEAN, "false", MEDIUM, OURS, IN_FORCE),
    row("controlled.shutdown.max.retries",
        "Kafka 3's limit of shutdown attempts; no effect, because a broker asks with every "
        "heartbeat.",
        INT, "3", MEDIUM, at_least(0), OURS),
    row("controlled.shutdown.retry.backoff.ms",
        "Kafka 3's pause between shutdown attempts; no effect, because the heartbeat interval "
        "applies.",
        LONG, "5000", MEDIUM, at_least(0), OURS),
    row("cordoned.log.dirs",
        "Set to * to place no new replicas on this broker (KIP-1066); existing ones stay.",
        LIST, "", MEDIUM, PER_BROKER, CORDONED, OURS, IN_FORCE),
    row("enable.under.replicated.topic.creation",
        "Set to true to create topics while brokers are missing; their replicas are added when "
        "brokers join.",
        BOOLEAN, "false", MEDIUM, CLUSTER_WIDE, OURS, IN_FORCE),
    row("follower.replication.throttled.rate",
        "Bytes a second at which this broker copies throttled replicas that catch up.",
        LONG, LONG_MAX, MEDIUM, at_least(0), OURS, IN_FORCE, CLUSTER_WIDE),
    row("http.listener",
        "Address of metrics and health, as host:port; empty is off, port 0 any free.",
        STRING, "", MEDIUM, OURS, IN_FORCE),
    row("http.security.protocol",
        "SSL encrypts metrics and health with the keys of ssl.keystore.location.",
        STRING, "PLAINTEXT", MEDIUM, one_of("PLAINTEXT", "SSL"), OURS, IN_FORCE),
    row("http.tokens.file",
        "File with bearer tokens, one a line, for everything over HTTP but health.",
        STRING, "", MEDIUM, OURS, IN_FORCE),
    row("leader.imbalance.per.broker.percentage",
        "Share of leaderships that a broker may be away from preferred before they move.",
        INT, "10", HIGH, between(0, 100), OURS, IN_FORCE),
    row("leader.replication.throttled.rate",
        "Bytes a second at which throttled replicas that catch up are copied from this broker.",
        LONG, LONG_MAX, MEDIUM, at_least(0), OURS, IN_FORCE, CLUSTER_WIDE),
    row("listener.plaintext.beyond.loopback.allow",
        "Set to true to listen without encryption on addresses that other machines can reach.",
        BOOLEAN, "false", HIGH, OURS, IN_FORCE),
    row("listener.unauthenticated.beyond.loopback.allow",
        "Allow encrypted listeners beyond loopback whose clients do not show who they are.",
        BOOLEAN, "false", MEDIUM, IN_FORCE, OURS),
    row("ignore.rack.assignment",
        "Default of the topic setting: computed assignment ignores racks.",
        BOOLEAN, "false", LOW, CLUSTER_WIDE, OURS, IN_FORCE),
    row("metadata.store.url",
        "Database for committed metadata; by default a file in the first folder.",
        PASSWORD, "", HIGH, OURS, IN_FORCE),
    row("replica.placer.class.name",
        "Default of the topic setting: placer that chooses brokers for new partitions.",
        STRING, "striped", MEDIUM, CLUSTER_WIDE, PLACER, OURS, IN_FORCE),
    row("replica.alter.log.dirs.io.max.bytes.per.second",
        "Bytes a second at which replicas are copied to another folder of this broker; at most "
        "33554432 are.",
        LONG, LONG_MAX, MEDIUM, at_least(0), OURS, IN_FORCE, CLUSTER_WIDE),
    row("sasl.oauthbearer.unsecured.tokens.allow",
        "Set to true to take tokens that anybody can make, on the loopback interface.",
        BOOLEAN, "false", LOW, OURS, IN_FORCE),
    row("super.users",
        "With an authorizer: principals that may do everything, as User:admin;User:ops.",
        STRING, "", MEDIUM, OURS, IN_FORCE),
)
# fmt: on
