"""Kafka's producer settings as options of the sink: which take effect, which do not, which may not.

What: three tables, from which options are read and which a test compares with the documentation.
Names and defaults are those of Kafka's producer 4.1; where a default differs, its sentence says so.
Rule kept: each setting of that producer is in one of the tables, or in that of security_options.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from anabranch.core.wire.compression import Codec

CODECS = {each.name.lower(): each for each in Codec}
MOST_BYTES = 64 << 20
"""Of a batch: a worker holds several of them."""
LONGEST_MS = 2**31 - 1


class Setting(NamedTuple):
    """One setting that takes effect."""

    default: str
    read: Callable[[str], Any]
    """The value for a text; raises ValueError with what the text must be."""
    meaning: str


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within limits."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return read


def one_of(*names: str) -> Callable[[str], str]:
    """Reads one of some words."""

    def read(text: str) -> str:
        if text.lower() not in names:
            raise ValueError("one of " + ", ".join(names))
        return text.lower()

    return read


def truth(text: str) -> bool:
    """Reads true or false."""
    return one_of("true", "false")(text) == "true"


def words(text: str) -> str:
    """Reads any text that is not empty."""
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text.strip()


ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"

WITH_EFFECT: dict[str, Setting] = {
    "acks": Setting(
        "all", one_of("all", "-1", "1"),
        "Replicas that must have a batch before it counts as written. 1 needs "
        "enable.idempotence=false; 0 is refused, because batches could be lost unnoticed.",
    ),
    "batch.size": Setting(
        "524288", whole(0, MOST_BYTES),
        "Maximum size of a batch before compression, limited by max.request.size; a larger record "
        "forms its own batch. Kafka's default is 16384. The sink has whole columns at once, so "
        "larger batches add no delay.",
    ),
    "bootstrap.servers": Setting("", words, "Brokers as host:port, separated by commas; required."),
    "buffer.memory": Setting(
        str(16 << 20), whole(1 << 16, 1 << 30),
        "Maximum number of unacknowledged bytes of a task; beyond it, the task waits. Kafka's "
        "default is 33554432 for a whole process.",
    ),
    "client.id": Setting("anabranch-spark", words, "The client id that brokers see."),
    "compression.gzip.level": Setting(
        "", whole(-1, 9), "Level of gzip, 1 to 9; -1 is its default."
    ),
    "compression.lz4.level": Setting("", whole(1, 17), "Level of lz4; empty is its default."),
    "compression.type": Setting("none", one_of(*CODECS), "none, gzip, snappy, lz4 or zstd."),
    "compression.zstd.level": Setting(
        "", whole(-131072, 22), "Level of zstd; empty is its default, 3."
    ),
    "delivery.timeout.ms": Setting(
        "120000", whole(1, LONGEST_MS),
        "Time after which the task fails if a batch is not acknowledged; at least "
        "request.timeout.ms.",
    ),
    "enable.idempotence": Setting(
        "true", truth, "Whether brokers discard repeated batches of a task."
    ),
    "max.block.ms": Setting(
        "60000", whole(0, LONGEST_MS), "How long a task waits for a topic or a producer id."
    ),
    "max.in.flight.requests.per.connection": Setting(
        "5", whole(1, 1000),
        "Maximum number of batches in flight to a partition; at most 5 with idempotence.",
    ),
    "max.request.size": Setting(
        "1048576", whole(100, MOST_BYTES),
        "Maximum size of a record with the header of its batch, before compression.",
    ),
    "partitioner.class": Setting(
        "", one_of("", ROUND_ROBIN.lower()),
        f"Empty, or {ROUND_ROBIN}, which ignores keys.",
    ),
    "partitioner.ignore.keys": Setting(
        "false", truth, "Whether rows with a key are distributed like rows without one."
    ),
    "request.timeout.ms": Setting(
        "30000", whole(1, LONGEST_MS), "How long a broker may wait for replicas."
    ),
    "retries": Setting(
        str(LONGEST_MS), whole(0, LONGEST_MS),
        "Maximum number of retries, within delivery.timeout.ms.",
    ),
    "retry.backoff.max.ms": Setting(
        "1000", whole(0, LONGEST_MS), "The longest pause between retries."
    ),
    "retry.backoff.ms": Setting(
        "100", whole(0, LONGEST_MS), "The first pause; it doubles with each retry."
    ),
    "transaction.timeout.ms": Setting(
        "900000", whole(1000, LONGEST_MS),
        "With exactlyOnce: the longest time from the first row of a task to the commit of the "
        "write; at most the brokers' transaction.max.timeout.ms. Kafka's default is 60000.",
    ),
    "transactional.id": Setting(
        "", words,
        "With exactlyOnce: what the transactional ids of this query begin with, if not a hash of "
        "checkpointLocation. No other query may have it.",
    ),
}  # fmt: skip

_CONNECTIONS = "connections last for a task"
_METADATA = "a task asks for metadata at its start, and when a leader has moved"
_METRICS = "Spark counts rows and bytes"
_LOAD = "rows without a key are spread evenly by bytes"

WITHOUT_EFFECT: dict[str, str] = {
    "auto.include.jmx.reporter": _METRICS,
    "client.dns.lookup": "all addresses of a name are tried",
    "connections.max.idle.ms": _CONNECTIONS,
    "enable.metrics.push": _METRICS,
    "linger.ms": "the sink has whole columns, so it sends each batch at once",
    "metadata.max.age.ms": _METADATA,
    "metadata.max.idle.ms": _METADATA,
    "metadata.recovery.rebootstrap.trigger.ms": _METADATA,
    "metadata.recovery.strategy": _METADATA,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partitioner.adaptive.partitioning.enable": _LOAD,
    "partitioner.availability.timeout.ms": _LOAD,
    "receive.buffer.bytes": "the operating system chooses the size",
    "reconnect.backoff.max.ms": "retry.backoff.max.ms is used",
    "reconnect.backoff.ms": "retry.backoff.ms is used",
    "send.buffer.bytes": "the operating system chooses the size",
    "socket.connection.setup.timeout.max.ms": "the timeout is 10 s",
    "socket.connection.setup.timeout.ms": "the timeout is 10 s",
}
"""Setting -> why it has none. It is accepted, so that a job can keep its options."""

_SERIALIZERS = "Columns are written as they are: cast them to string or binary"
_TWO_PHASE = "No released broker supports it: use option exactlyOnce"

REFUSED: dict[str, str] = {
    "config.providers": "Config providers are not supported: set the value itself",
    "interceptor.classes": "Java classes are not supported: change the rows in Spark",
    "key.serializer": _SERIALIZERS,
    "transaction.two.phase.commit.enable": _TWO_PHASE,
    "value.serializer": _SERIALIZERS,
}
"""Setting -> what to do instead."""
