"""The two clocks of a node.

The wall clock says what is written into records and shown to people; it may be set, and go back.
The steady clock only ever goes on, and where the system has such a clock it counts the time in
which the machine was suspended: a lease must not outlast that. Whatever is measured (silence,
deadlines, intervals) is measured with it. Tests set the wall clock of one node with `AHEAD_MS`. Not
here: time in `core`, which is always handed in.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar

AHEAD_MS: ContextVar[Sequence[int]] = ContextVar("ahead_ms", default=(0,))
"""By how much the wall clock of the node in this context is ahead of the machine's: the first
element, read anew each time."""

STEADY_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops its monotonic clock while the machine sleeps, and has this one for who minds."""


def wall_ms() -> int:
    """Milliseconds since 1970: what handlers are told."""
    return time.time_ns() // 1_000_000 + AHEAD_MS.get()[0]


def both_ms() -> tuple[int, int]:
    """`wall_ms` and `steady_ms`, for the begin of a step."""
    return (
        time.time_ns() // 1_000_000 + AHEAD_MS.get()[0],
        time.clock_gettime_ns(STEADY_CLOCK) // 1_000_000,
    )


def steady_ms() -> int:
    """Milliseconds of a clock that is never set: what sessions are measured with, and what the
    handlers of the controller listener must be told."""
    return time.clock_gettime_ns(STEADY_CLOCK) // 1_000_000
