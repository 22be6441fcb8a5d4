"""Waits of less than a millisecond: uvloop's timers know only whole ones.

What: `ShortTimer` calls back a fixed time after the first of some calls came, all of them together.
It is a timer of Linux (`timerfd`) that the loop watches. Elsewhere, or when there is no descriptor
left, calls are made in the loop's next turn: whoever asks for a wait may do without it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

CLOEXEC, NONBLOCK = 0o2000000, 0o4000
"""Flags of timerfd_create."""

MONOTONIC = 1
"""Its clock: CLOCK_MONOTONIC."""

NANOSECONDS = 1_000_000_000


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`: the interval is 0, so that the timer ends once."""

    _fields_ = [
        (name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")
    ]


class ShortTimer:
    """Calls that come `seconds` (below one) later. All methods are for the loop's thread."""

    def __init__(self, seconds: float) -> None:
        spec = _TimerSpec(0, 0, 0, round(seconds * NANOSECONDS))
        self._arguments = 0, ctypes.byref(spec), None
        self._spec = spec
        self._calls: list[Callable[[], object]] = []
        self._descriptor = -1
        with suppress(AttributeError, TypeError):  # another system's C library
            library = ctypes.CDLL(None)
            self._set = library.timerfd_settime
            self._descriptor = library.timerfd_create(MONOTONIC, CLOEXEC | NONBLOCK)
        self._is_watched = False

    @property
    def is_running(self) -> bool:
        """Whether calls wait."""
        return bool(self._calls)

    def call(self, action: Callable[[], object]) -> None:
        """Call `action` when the time is over."""
        loop = asyncio.get_running_loop()
        if self._descriptor < 0:
            loop.call_soon(action)
            return
        if not self._is_watched:
            self._is_watched = True
            loop.add_reader(self._descriptor, self._ring)
        if not self._calls:
            self._set(self._descriptor, *self._arguments)
        self._calls.append(action)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        calls, self._calls = self._calls, []
        for action in calls:  # each by itself: one that raises does not end the others
            asyncio.get_running_loop().call_soon(action)

    def close(self) -> None:
        """Make no more calls."""
        self._calls.clear()
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_watched = False
        self.abandon()

    def abandon(self) -> None:
        """Let go of the descriptor, where the loop runs no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
