"""What one log needs as time passes: roll what is old, drop what has expired, forget producers.

Rules kept: a segment that a pass of compaction reads stays until the pass is over; what lies before
the log start goes also where `cleanup.policy` is compact alone. Not here: when it is time for that
(`log.retention.check.interval.ms`), compaction (`cleaner.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.log.segment import Segment

FUTURE_MS = 3_600_000
"""Timestamps further ahead of the clock are worth a warning: up to Kafka's default of
`message.timestamp.after.max.ms` they are a clock that differs, and no news for each segment."""


def look_after(log: Log, now_ms: int, high_watermark: int, *, is_cleaning: bool) -> bool:
    """Do what is due for a log; whether segments were dropped. May raise StorageFault, and
    ColdRead where an index has to be made again first."""
    if log.fault is not None:
        return False
    log.roll_if_due(now_ms)
    dropped = not is_cleaning and bool(log.apply_retention(now_ms, high_watermark))
    log.expire_producers(now_ms)
    return dropped


def take_future(log: Log, now_ms: int) -> Segment | None:
    """The oldest segment, if retention by time waits for a timestamp in the future: all later ones
    wait with it. Given once for each segment; Kafka warns at each check."""
    config = log.config
    if log.fault is not None or not log.segments or not config.deletes or config.retention_ms < 0:
        return None
    oldest = log.segments[0]
    if oldest.is_future_told or oldest.max_timestamp <= now_ms + FUTURE_MS:
        return None
    oldest.is_future_told = True
    return oldest
