"""What one log needs as time passes: roll what is old, drop what has expired, forget producers.

Rules kept: a segment that a pass of compaction reads stays until the pass is over; what lies before
the log start goes also where `cleanup.policy` is compact alone. Not here: when it is time for that
(`log.retention.check.interval.ms`), compaction (`cleaner.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.log.log import Log


def look_after(log: Log, now_ms: int, high_watermark: int, *, is_cleaning: bool) -> bool:
    """Do what is due for a log; whether segments were dropped. May raise StorageFault."""
    if log.fault is not None:
        return False
    log.roll_if_due(now_ms)
    dropped = not is_cleaning and bool(log.apply_retention(now_ms, high_watermark))
    log.expire_producers(now_ms)
    return dropped
