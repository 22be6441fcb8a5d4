"""How fast a broker copies and reads: `remote.log.manager.{copy,fetch}.max.bytes.per.second`.

What: one pace for all copies of a broker, and one for all reads; each piece is told how long it has
to wait. Rule kept: over any time the bytes are at most the rate times that time, and those of a
second, which is how long Kafka's quota looks back at least; a rate that changes counts from the
next piece on. Source: KIP-956. Not here: waiting.
"""

from __future__ import annotations

BURST_MS = 1_000
UNLIMITED = 2**63 - 1
"""Kafka's default."""


class CopyPace:
    """All copies, or all remote reads, of one broker, by its steady clock."""

    def __init__(self, bytes_per_second: int = UNLIMITED) -> None:
        self.bytes_per_second = bytes_per_second
        self._used_until_ms = 0.0
        """When what was taken so far will have been earned."""

    def wait_ms(self, byte_size: int, now_ms: int) -> int:
        """Take some bytes; how long to wait before they are read."""
        if self.bytes_per_second >= UNLIMITED:
            return 0
        begin = max(self._used_until_ms, now_ms - BURST_MS)
        self._used_until_ms = begin + byte_size * 1000 / self.bytes_per_second
        return max(0, -int(-(begin - now_ms) // 1))
