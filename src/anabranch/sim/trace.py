"""The trace of a run: one line an event, in fixed columns, and a digest over all of them.

    seconds      kind         who          what happened                        details
    12.345678    fault        broker-2     crash
    12.347020    elected      topic-0-1    leader 3, epoch 5                     isr=3,1

Times are virtual. Rule kept: what is written depends on seed and code alone, so two runs of a seed
can be compared byte by byte; the digest is what remains of a trace that nobody reads. Not here:
which events are worth a line (whoever calls `World.note`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

DIGEST_BYTES = 16


def line_of(at_us: int, kind: str, who: str, text: str, details: dict[str, Any]) -> str:
    """One event as people read it."""
    seconds, micros = divmod(at_us, 1_000_000)
    line = f"{seconds:4d}.{micros:06d}  {kind:<14} {who:<14} {text}"
    if details:
        line += "  " + " ".join(f"{key}={_value(value)}" for key, value in details.items())
    return line.rstrip()


def _value(value: Any) -> str:
    if isinstance(value, (frozenset, set)):
        value = sorted(value)
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value)) or "-"
    return str(value)


class Trace:
    """Listens to a world. `keeps` keeps the lines; without it there is only the digest."""

    def __init__(self, *, keeps: bool = False) -> None:
        self.keeps = keeps
        self.lines: list[str] = []
        self.events = 0
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def __call__(self, at_us: int, kind: str, who: str, text: str, details: dict[str, Any]) -> None:
        """Take one event."""
        line = line_of(at_us, kind, who, text, details)
        self.events += 1
        self._hash.update(line.encode())
        if self.keeps:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """What two equal traces have in common, as hexadecimal text."""
        return self._hash.hexdigest()
