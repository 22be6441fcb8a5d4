"""When a node writes a snapshot of its own copy.

What: enough new records since the last one, or any after enough time; one at a time. Why: a start
reads the newest snapshot and what follows it, and the log before the one before that goes. Rule
kept: records that come while one is written count for the next, which may be due when the other
ends; one that failed is not tried again before the next is due.
"""

from __future__ import annotations

from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.snapshot import snapshot_is_due, time_is_over
from anabranch.core.settings.broker import BrokerConfig


class OwnSnapshots:
    """Times are of a clock that is never set."""

    def __init__(self, copy: MetadataCopy, config: BrokerConfig, now_ms: int) -> None:
        self._copy = copy
        self._config = config
        self._begun_ms = now_ms
        self._is_writing = False

    def due(self, now_ms: int) -> MetadataImage | None:
        """The image to write now, which counts as begun; None when none is due."""
        copy, age_ms = self._copy, now_ms - self._begun_ms
        if self._is_writing or not snapshot_is_due(self._config, copy.bytes_since_snapshot, age_ms):
            return None
        copy.bytes_since_snapshot = 0
        self._begun_ms = now_ms
        self._is_writing = True
        return copy.image

    def due_by_time(self, now_ms: int) -> MetadataImage | None:
        """The same when nothing came: what came before may have waited long enough."""
        is_over = time_is_over(self._config, now_ms - self._begun_ms)
        return self.due(now_ms) if is_over else None

    def ended(self) -> None:
        """It was written, or could not be: the next may be `due`."""
        self._is_writing = False
