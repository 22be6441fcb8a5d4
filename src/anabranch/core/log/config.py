"""What a log needs to know of its topic's settings, in the log's own units.

One frozen object is shared by all partitions of all topics that have the same settings. The names,
defaults and validation of settings live in `core/settings`; this is their result.
"""

from __future__ import annotations

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class LogConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Defaults are Kafka 4.1's. -1 means unlimited where Kafka says so."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = -1
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_interval_messages: int = LONG_MAX
    flush_interval_ms: int = LONG_MAX
    cleanup_policy: tuple[str, ...] = ("delete",)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    preallocate: bool = False
    has_remote: bool = False
    """Whether another store may hold records from before the local part. What is retained is then
    decided for both together (`core.remote`)."""

    @property
    def compacted(self) -> bool:
        """Whether records need keys."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether retention by size and time applies."""
        return "delete" in self.cleanup_policy
