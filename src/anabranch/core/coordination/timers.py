"""Deadlines of coordinators: one heap, so that the shell needs one timer of its loop for all.

The rules it keeps: an action runs at most once, and never after `cancel`; a run ends, whatever its
actions plan. Times are milliseconds of the clock that never goes back, so that a wall clock that is
set expires nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from anabranch.core.due import Mark, unmarked

Action: TypeAlias = Callable[[int], None]
"""Called with the wall clock's milliseconds."""

DEAD_ENTRIES_KEPT = 1024
"""Cancelled timers may lie in the heap until their time; beyond this it is swept."""


class Timer:
    """One deadline; `cancel` forgets it."""

    __slots__ = ("action", "due_ms")

    def __init__(self, due_ms: int, action: Action) -> None:
        self.due_ms = due_ms
        self.action: Action | None = action

    def cancel(self) -> None:
        """The action will not run."""
        self.action = None


class Timers:
    """All deadlines of one broker's coordinators. `mark` is called when `next_due_ms` may be an
    earlier one, and after a run."""

    def __init__(self, mark: Mark = unmarked) -> None:
        self._mark = mark
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._swept_at = DEAD_ENTRIES_KEPT

    def __len__(self) -> int:
        return sum(timer.action is not None for _, _, timer in self._heap)

    def at(self, due_ms: int, action: Action) -> Timer:
        """Run `action` once the steady clock has reached `due_ms`."""
        timer = Timer(due_ms, action)
        self._sequence += 1
        if len(self._heap) >= self._swept_at:
            self._sweep()
        if not self._heap or due_ms < self._heap[0][0]:
            self._mark()
        heappush(self._heap, (due_ms, self._sequence, timer))
        return timer

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapify(self._heap)
        self._swept_at = 2 * len(self._heap) + DEAD_ENTRIES_KEPT

    def next_due_ms(self) -> int | None:
        """When `run` has something to do; None when nothing is planned."""
        while self._heap and self._heap[0][2].action is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, steady_ms: int, now_ms: int) -> None:
        """Run what is due; what its actions plan is for the next run, even if due at once."""
        last = self._sequence
        self._mark()
        while (due := self.next_due_ms()) is not None and due <= steady_ms:
            if self._heap[0][1] > last:
                return
            timer = heappop(self._heap)[2]
            action, timer.action = timer.action, None
            assert action is not None
            action(now_ms)
