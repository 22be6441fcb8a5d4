"""What brokers reach over a network that is not theirs: the object store and the coordinator.

What: a call takes a while, is carried out, and is answered. Faults: it gets lost, is done and not
answered, is done long after its caller was told that nobody answers, is slow; all of it is away, or
one caller is cut off. Rule kept: what a call does is done at one moment, whole; a caller that dies
meanwhile changes nothing in that. Not here: what calls do (`objects.py`, `coordinator.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.errors import StorageFault
from anabranch.sim.world import World

LATENCY_US = (300, 1_500)
"""There, and again back."""
REFUSED_US = (1_000, 300_000)
"""Until a caller learns that it is away: a refused connection, or a timeout."""
PATIENCE_US = 2_000_000
"""How long a caller waits for an answer that does not come."""

Done = Callable[[Any], None]
FATES = LOST, UNANSWERED, LATE = "lost", "unanswered", "late"


@dataclass(slots=True)
class RemoteFaults:
    """What is wrong now. Chances are between 0 and 1, times in microseconds."""

    away: bool = False
    slow_us: int = 0
    """At most so much longer, each way."""
    lost: float = 0.0
    """Not done, and not answered."""
    unanswered: float = 0.0
    """Done, and not answered."""
    late: float = 0.0
    """Not answered, and done `late_us` later at most."""
    late_us: int = 0
    cut_off: set[str] = field(default_factory=set)
    """Callers that do not reach it."""


class Remote:
    """See the module. `skew_ms` is by how much its clock is ahead of the world's."""

    def __init__(self, world: World, name: str, away: Callable[[str], StorageFault]) -> None:
        self.world = world
        self.name = name
        self.faults = RemoteFaults()
        self.skew_ms = 0
        self.met: Counter[tuple[str, str]] = Counter()
        """(call, what became of it): how often."""
        self._away = away
        self._random = world.random(name)

    @property
    def now_ms(self) -> int:
        """What its clock shows: milliseconds since 1970."""
        return self.world.now_ms + self.skew_ms

    def reaches(self, caller: str) -> bool:
        """Whether a call that is made now arrives, but for chance."""
        return not self.faults.away and caller not in self.faults.cut_off

    def call(self, caller: str, what: str, act: Callable[[], Any], done: Done) -> None:
        """Have something done; `done` gets what it gave, or the StorageFault that it raised."""
        if not self.reaches(caller):
            self.world.after(self._random.randint(*REFUSED_US), done, self.unanswered())
            return
        faults, world = self.faults, self.world
        fate = self._random.random()
        if fate < faults.lost:
            self.met[what, LOST] += 1
            world.after(PATIENCE_US, done, self.unanswered())
        elif fate < faults.lost + faults.unanswered:
            self.met[what, UNANSWERED] += 1
            world.after(self._way_us(), self._carry_out, act)
            world.after(PATIENCE_US, done, self.unanswered())
        elif fate < faults.lost + faults.unanswered + faults.late:
            self.met[what, LATE] += 1
            world.after(self._random.randrange(faults.late_us + 1), self._carry_out, act)
            world.after(PATIENCE_US, done, self.unanswered())
        else:
            world.after(self._way_us(), self._answer, act, done)

    def unanswered(self) -> StorageFault:
        """What a caller is told that gets no answer."""
        return self._away(f"{self.name} does not answer")

    def _way_us(self) -> int:
        low, high = LATENCY_US
        slow_us = self.faults.slow_us
        way_us = self._random.randint(low, high)
        return way_us + (self._random.randrange(slow_us) if slow_us else 0)

    def _answer(self, act: Callable[[], Any], done: Done) -> None:
        result = self._carry_out(act)
        self.world.after(self._way_us(), done, result)

    def _carry_out(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except StorageFault as fault:
            return fault
