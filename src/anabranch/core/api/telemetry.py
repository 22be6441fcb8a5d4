"""What the two telemetry requests share: the subscription of a broker that wants no metrics.

Source: KIP-714 and Kafka's ClientMetricsManager. Not here: receiving metrics."""

from __future__ import annotations

from anabranch.core.wire.crc import crc32c

PUSH_INTERVAL_MS = 300_000
MAX_BYTES = 1024 * 1024
COMPRESSIONS = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: in the order that Kafka prefers."""


def subscription_id(client_instance_id: bytes) -> int:
    """A number that changes when the subscription would; signed, 32 bits."""
    checksum = crc32c(b"[]%d" % PUSH_INTERVAL_MS + client_instance_id)
    return checksum - 2**32 if checksum >= 2**31 else checksum
