"""The rows, a module for each family of tools, in the order of the table."""

FAMILIES = (
    "topics",
    "configs",
    "console",
    "offsets",
    "perf",
    "groups",
    "cluster",
    "acls",
    "secure",
    "placement",
    "dump",
    "tiered",
    "folder",
    "kcat",
    "old_clients",
    "kafkajs",
    "franz",
    "sarama",
    "librdkafka",
    "transactions",
    "streams",
    "connect",
    "mirror",
    "spark",
)
"""Modules of this package; importing one registers its rows."""
