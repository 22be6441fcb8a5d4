"""Requests that wait: for records, a high watermark, a flush, a disk, metadata, or for time.

What: a parked request is found by the keys of what it waits for, and by its deadline. Why one heap
and one timer: thousands of long polls then cost one timer of the loop. Name and idea are Kafka's
(`DelayedOperationPurgatory`).

Rule kept: a parked request is answered exactly once, by `finish`. Deadlines are kept in
milliseconds of a clock that never goes back; the wall clock is only passed through to `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from anabranch.core.due import Mark, unmarked
from anabranch.core.errors import Bug
from anabranch.core.outcome import Cold, Wait

DEAD_ENTRIES_KEPT = 4096
"""Finished requests may lie in the heap until their deadline; beyond this it is swept."""


def _is_over(_now_ms: int, _expired: bool) -> None:
    return None


def _nobody(_outcome: Any) -> None:
    return None


class Parked:
    """One waiting request: `finish(outcome)` is called once, with what `poll` returned."""

    __slots__ = ("finish", "is_done", "is_timed", "keys", "poll")

    def __init__(self, wait: Wait | Cold, finish: Callable[[Any], None]) -> None:
        self.keys = wait.keys
        self.poll = wait.poll
        self.finish = finish
        self.is_done = False
        self.is_timed = False


class Purgatory:
    """All waiting requests of one role of a node. `mark` is called when `next_deadline` may be an
    earlier one, and when some have expired."""

    def __init__(self, mark: Mark = unmarked) -> None:
        self._mark = mark
        self.by_key: dict[Hashable, dict[Parked, None]] = {}
        """Those that wait under each key."""
        self._heap: list[tuple[int, int, Parked]] = []
        self._sequence = 0
        self._dead = 0
        self.parked_total = 0

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def park_cold(self, cold: Cold, finish: Callable[[Any], None]) -> Parked:
        """Keep a request until its reads have ended, however long the disk takes."""
        parked = Parked(cold, finish)
        self.by_key[cold] = {parked: None}
        return parked

    def park(
        self, wait: Wait, finish: Callable[[Any], None], steady_ms: int, now_ms: int
    ) -> Parked:
        """Keep a request until a key changes or its time is over. `now_ms` is by the clock that its
        handler was told, `steady_ms` by the one that deadlines are kept in."""
        parked = Parked(wait, finish)
        parked.is_timed = True
        for key in wait.keys:
            self.by_key.setdefault(key, {})[parked] = None
        self._sequence += 1
        self.parked_total += 1
        deadline = steady_ms + (wait.deadline_ms - now_ms)
        if not self._heap or deadline < self._heap[0][0]:
            self._mark()
        heappush(self._heap, (deadline, self._sequence, parked))
        return parked

    def next_deadline(self) -> int | None:
        """The steady clock's milliseconds at which `expire` has something to do."""
        while self._heap and self._heap[0][2].is_done:
            heappop(self._heap)
            self._dead -= 1
        return self._heap[0][0] if self._heap else None

    def wake(self, keys: Iterable[Hashable], now_ms: int) -> None:
        """Ask those who wait for some of `keys` whether they have their answer now, each once: it
        looks at all that it waits for, of which thousands may have changed."""
        asked: set[Parked] = set()
        for key in keys:
            for parked in tuple(self.by_key.get(key, ())):
                if parked not in asked:
                    asked.add(parked)
                    self._poll(parked, now_ms, expired=False)

    def expire(
        self, steady_ms: int, now_ms: int, has_time: Callable[[], bool] = lambda: True
    ) -> None:
        """Answer those whose deadline has come, at least one and as long as there is time: a fetch
        looks once more at all its partitions. The others stay due."""
        self._mark()
        while self._heap and self._heap[0][0] <= steady_ms:
            parked = self._heap[0][2]
            if parked.is_done:
                heappop(self._heap)
                self._dead -= 1
            else:
                self._poll(parked, now_ms, expired=True)
                if not has_time():
                    return

    def cancel(self, parked: Parked) -> None:
        """Forget a request: its connection is gone."""
        if not parked.is_done:
            self._remove(parked)

    def finish_all(self, now_ms: int) -> None:
        """Answer everybody now, as if their time had come, and that of what they go on to wait for:
        the node stops."""
        for _, _, parked in sorted(self._heap, key=lambda entry: entry[1]):
            if not parked.is_done:
                self._poll(parked, now_ms, expired=True, is_last=True)

    def _poll(self, parked: Parked, now_ms: int, *, expired: bool, is_last: bool = False) -> None:
        if parked.is_done:
            return
        try:
            outcome = parked.poll(now_ms, expired)
            while is_last and isinstance(outcome, Wait):
                outcome = outcome.poll(now_ms, True)
        except Exception as fault:
            outcome = fault
        if outcome is None and expired:
            outcome = Bug("a request that timed out gave no response")
        if outcome is not None:
            finish = parked.finish
            self._remove(parked)
            finish(outcome)

    def _remove(self, parked: Parked) -> None:
        parked.is_done = True
        parked.poll, parked.finish = _is_over, _nobody  # what they hold goes before the deadline
        for key in parked.keys:
            waiting = self.by_key.get(key)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self.by_key[key]
        self._dead += parked.is_timed
        if self._dead > DEAD_ENTRIES_KEPT and self._dead * 2 > len(self._heap):
            self._sweep()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_done]
        heapify(self._heap)
        self._dead = 0
