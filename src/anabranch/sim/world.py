"""A simulated world: its clock, what happens next in it, and its chance.

What: `World` keeps a virtual clock in whole microseconds and a heap of what is to happen. Running
it takes the next event, moves the clock there, and does it. Every source of chance has its own
stream, made from the seed and the stream's name, so that a new draw in one place changes nothing
elsewhere. Events may belong to a process: those of a paused one wait for it, those of a dead one
never happen. Why: with one thread, one clock and one seed, a run can be repeated to the byte.

Rule kept: nothing here reads a clock of the machine, and no order depends on hashes. Events of the
same microsecond happen in the order in which they were planned. Source: the simulators of
FoundationDB and TigerBeetle. Not here: what the events are.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

from anabranch.sim.processes import Process, Timer

WALL_START_MS = 1_700_000_000_000
"""What wall clocks say when the world begins."""
ANY_LIFE = -1
"""Of an event that comes from outside, in whatever life its process is by then."""

Listener: TypeAlias = Callable[[int, str, str, str, dict[str, Any]], None]
"""Takes one line of the trace: microseconds, kind, who, text, details."""


class World:
    """The clock, the events to come, and the streams of chance of one run.

    `ended` is called after each event with the process whose event it was, None when it was
    nobody's. `wire` says that messages are encoded and decoded on their way.
    """

    def __init__(self, seed: int, *, wire: bool = False) -> None:
        self.seed = seed
        self.wire = wire
        self.now_us = 0
        self.events = 0
        self.ended: Callable[[Process | None], None] | None = None
        self.listeners: list[Listener] = []
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self.streams: dict[str, Random] = {}

    @property
    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970."""
        return WALL_START_MS + self.now_us // 1000

    @property
    def steady_ms(self) -> int:
        """The clock that is never set."""
        return self.now_us // 1000

    def random(self, name: str) -> Random:
        """The stream of chance of that name."""
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Random(f"{self.seed}/{name}")
        return stream

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> Timer:
        """Do something that is nobody's when that much time has gone by."""
        timer = Timer(action, args, None, 0)
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us, self._sequence, timer))
        return timer

    def at(self, at_us: int, action: Callable[..., None], *args: Any) -> Timer:
        """Do something that is nobody's at a moment; at once when that is past."""
        return self.after(max(0, at_us - self.now_us), action, *args)

    def after_in(
        self, process: Process, delay_us: int, action: Callable[..., None], *args: Any
    ) -> Timer:
        """Have a process do something later: not if its present life is over by then."""
        timer = Timer(action, args, process, process.life)
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us, self._sequence, timer))
        return timer

    def plan(self, timer: Timer, due_us: int) -> None:
        """Have something happen at a moment."""
        self._sequence += 1
        heappush(self._heap, (due_us, self._sequence, timer))

    def step(self) -> bool:
        """Everything that happens at the next moment; False when nothing is to come."""
        before = self.events
        while self._heap and self.events == before:
            self.run(self._heap[0][0])
        return self.events > before

    def run(self, until_us: int) -> None:
        """Everything that happens up to a moment, which it is then."""
        heap, ended = self._heap, self.ended
        while heap and heap[0][0] <= until_us:
            due_us, _, timer = heappop(heap)
            action = timer.action
            if action is None:
                continue
            self.now_us = due_us
            process = timer.process
            if process is not None:
                if timer.life != ANY_LIFE and timer.life != process.life:
                    continue
                if process.held is not None:
                    process.held.append(timer)
                    continue
            self.events += 1
            timer.action = None
            action(*timer.args)
            if ended is not None:
                ended(process)
        self.now_us = max(self.now_us, until_us)

    def release(self, process: Process) -> None:
        """What waited for a paused process happens now, in its order."""
        held, process.held = process.held or [], None
        for timer in held:
            self._sequence += 1
            heappush(self._heap, (self.now_us, self._sequence, timer))

    def note(self, kind: str, who: str, text: str = "", **details: Any) -> None:
        """One line of the trace."""
        for listener in self.listeners:
            listener(self.now_us, kind, who, text, details)
