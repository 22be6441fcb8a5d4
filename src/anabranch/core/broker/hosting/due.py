"""What is due for a broker's logs as time passes.

Rule kept: intervals are measured with the steady clock from the first tick, and read anew each
time, because the settings are dynamic. Not here: what is done (`hosting.py`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig


class Due(Enum):
    """What may be due, in the order in which it is done."""

    HIGH_WATERMARKS = auto()
    CHECKPOINTS = auto()
    RETENTION = auto()


class Timers:
    """When each kind was done last."""

    def __init__(self) -> None:
        self._last_ms: dict[Due, int] = {}

    def due(self, config: BrokerConfig, now_ms: int) -> list[Due]:
        """What is due now; it counts as done."""
        intervals = {
            Due.HIGH_WATERMARKS: config.replica_high_watermark_checkpoint_interval_ms,
            Due.CHECKPOINTS: min(
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
            ),
            Due.RETENTION: config.log_retention_check_interval_ms,
        }
        found = []
        for each, interval_ms in intervals.items():
            if now_ms - self._last_ms.setdefault(each, now_ms) >= interval_ms:
                self._last_ms[each] = now_ms
                found.append(each)
        return found
