"""Which failed folders a controller has heard of, and for how long one has not been told.

Rule kept: a broker whose folder failed tells a controller within `log.dir.failure.timeout.ms`, or
stops: as long as no controller knows, no other broker leads what lay in that folder. Source:
KIP-858.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.types import NEVER_MS


class FailedFolders:
    """What of one broker's failed folders is known to a controller."""

    def __init__(self, timeout_ms: int) -> None:
        self.limit_ms = NEVER_MS
        """When the broker must stop, NEVER_MS while every failed folder was told."""
        self._timeout_ms = timeout_ms
        self._told: frozenset[bytes] = frozenset()

    def told(self, directories: Iterable[bytes]) -> None:
        """A controller confirmed a message that names these as failed, or does without them."""
        self._told = frozenset(directories)

    def look(self, failed: Iterable[bytes], now_ms: int) -> None:
        """Compare with what is failed now: the time runs from the first look that finds news."""
        if self._told.issuperset(failed):
            self.limit_ms = NEVER_MS
        elif self.limit_ms == NEVER_MS:
            self.limit_ms = now_ms + self._timeout_ms + 1

    def stop_looking(self) -> None:
        """The broker leaves: all it has will be led by others."""
        self.limit_ms = NEVER_MS
