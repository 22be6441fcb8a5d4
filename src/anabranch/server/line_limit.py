"""Bounds how many lines of one kind the log gets in a second: who sends rubbish in a loop, or meets
the same fault with each request, may not fill the disk. The next line says how many were left out.
"""

from __future__ import annotations

SECOND_MS = 1000


class LineLimit:
    """So many lines a second."""

    __slots__ = ("_lines", "_most", "_since_ms", "_unsaid")

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_ms = self._lines = self._unsaid = 0

    def take(self, now_ms: int) -> dict[str, int] | None:
        """What to add to a line that may be written now; None when it may not."""
        if now_ms - self._since_ms >= SECOND_MS:
            self._since_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines > self._most:
            self._unsaid += 1
            return None
        more = {"unsaid": self._unsaid} if self._unsaid else {}
        self._unsaid = 0
        return more
