"""How long something is waited for: as long as it moves, and a while longer.

Why not for a fixed time: what takes 5 s on an idle machine takes 50 s on a busy one, and moves on
all the while. Rule kept: the wait ends, since it is bounded even while something moves. Not here:
what is looked at (`probe.py`).
"""

from __future__ import annotations

MOST_TIMES = 8
"""Longest wait for something that keeps moving: two states could follow each other for ever."""


class Patience:
    """Patience of `seconds` with what does not move; times are of one steady clock."""

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self._last: object = None
        self._since = now
        self._until = now + MOST_TIMES * seconds

    def is_over(self, seen: object, now: float) -> bool:
        """Whether it is over, when this is what is seen now."""
        if seen != self._last:
            self._last, self._since = seen, now
        return now >= min(self._since + self.seconds, self._until)
