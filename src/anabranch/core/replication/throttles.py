"""Throttles of replication: how fast replicas that catch up may be copied (KIP-73).

What: a topic lists replicas (`leader.replication.throttled.replicas` those that are copied from
here, `follower.…` those that copy), and a broker has a rate for each direction in bytes a second.
Rules kept, as in Kafka: every byte of a listed replica counts, also of one in sync; while the rate
of the last samples is above the limit a listed replica that is not in sync is left out of a
follower's requests, and of a leader's answers; one in sync never is, so that a throttle costs no
acknowledgement. Source: KIP-73, Kafka's ReplicationQuotaManager and its SimpleRate. Not here: who
is left out (`replication`, `api.fetch_followers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig

EVERY_REPLICA = "*"
SECOND_MS = 1000
LONGEST_REST_MS = 1000
"""A limit that was raised counts within this time."""
SHORTEST_REST_MS = 20
"""A replica that rests is looked at again no sooner: each look costs more than a few bytes."""


def is_listed(replicas: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list names the replica of a partition on a broker."""
    if not replicas:
        return False
    return EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas


class Throttle:
    """The bytes of one direction, in samples. Times are of the steady clock."""

    __slots__ = ("_samples", "_total_bytes")

    def __init__(self) -> None:
        self._samples: deque[list[int]] = deque()
        """(begin, bytes), the oldest first."""
        self._total_bytes = 0

    def record(self, size_bytes: int, now_ms: int, config: BrokerConfig) -> None:
        """Bytes of a listed replica were copied."""
        self._forget(now_ms, config)
        samples = self._samples
        length_ms = config.replication_quota_window_size_seconds * SECOND_MS
        if not samples or now_ms - samples[-1][0] >= length_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size_bytes
        self._total_bytes += size_bytes

    def rest_ms(self, limit: int, now_ms: int, config: BrokerConfig) -> int:
        """How long nothing more may be copied; 0 while the rate is not above the limit."""
        self._forget(now_ms, config)
        if not self._samples:
            return 0
        length_ms = config.replication_quota_window_size_seconds * SECOND_MS
        elapsed_ms = now_ms - self._samples[0][0]
        allowed = limit * max(elapsed_ms, length_ms)
        if self._total_bytes * SECOND_MS <= allowed:
            return 0
        until_gone_ms = config.replication_quota_window_num * length_ms - elapsed_ms
        if limit > 0:
            needed_ms = self._total_bytes * SECOND_MS // limit - elapsed_ms
            until_gone_ms = min(until_gone_ms, needed_ms)
        return min(max(SHORTEST_REST_MS, until_gone_ms), LONGEST_REST_MS)

    def _forget(self, now_ms: int, config: BrokerConfig) -> None:
        length_ms = config.replication_quota_window_size_seconds * SECOND_MS
        oldest_ms = now_ms - config.replication_quota_window_num * length_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._total_bytes -= self._samples.popleft()[1]
