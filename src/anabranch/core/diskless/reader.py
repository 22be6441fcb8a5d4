"""What readers wait for, asked for once and together: states, runs, ranges of objects.

What: `bring` takes what a request lacks and calls back when all of it has come, or failed; at the
end of each step `send` makes effects of what is wanted: one question for all states, one for all
runs, reads for the ranges of an object. Rules kept: what is under way is not asked for again, but
for states, of which an answer is only as new as its question; calls under way are bounded in number
and bytes (`read_lanes.py`), and readers far behind have a lane of their own; what came is pinned
until those who waited for it have read it. What failed is told to the partitions it concerns, which
refuse for a moment instead of asking again at once. Not here: what the answers mean (`broker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from anabranch.core.diskless.blocks import Blocks
from anabranch.core.diskless.effects import (
    AskStates,
    CallClaims,
    Effect,
    FindByTime,
    FindRuns,
    LookAtFacts,
    ReadObject,
)
from anabranch.core.diskless.read_lanes import MOST_FAR, MOST_NEAR, Lane, Range, joined
from anabranch.core.diskless.reads import (
    Ask,
    BytesOf,
    ClaimsOf,
    FactsOf,
    FarRead,
    RunByTime,
    RunsOf,
    StateOf,
)
from anabranch.core.diskless.rows import LogKey, Wanted

MOST_QUESTIONS = 4
"""To the coordinator at once: more would wait in its line."""
MOST_STATES, MOST_FOUND = 1_000, 200
"""Partitions in one question: longer ones would hold up shorter ones."""


class RequestReads:
    """One request's wants; `left` of them have not ended. `pinned` are objects that it reads."""

    __slots__ = ("done", "left", "pinned")

    def __init__(self, done: Callable[[], None]) -> None:
        self.left = 0
        self.done = done
        self.pinned: list[str] = []


class DisklessReader:
    """One broker's reads of coordinator and store."""

    def __init__(self, effects: list[Effect], blocks: Blocks) -> None:
        self.number = 0
        """Counts questions, and whatever must be answered by a later one."""
        self.blocks = blocks
        self._effects = effects
        self._questions = 0
        self._states: dict[LogKey, list[RequestReads]] = {}
        self._runs: dict[Wanted, list[RequestReads]] = {}
        self._times: dict[tuple[LogKey, int | None, int], list[RequestReads]] = {}
        self._others: dict[FactsOf | ClaimsOf, list[RequestReads]] = {}
        self._asked: dict[Effect, dict[Any, list[RequestReads]]] = {}
        self._under_way: dict[Any, list[RequestReads]] = {}
        self._lanes: tuple[Lane[RequestReads], ...] = (Lane(MOST_NEAR), Lane(MOST_FAR))
        self._pinned: list[str] = []
        """What the requests that go on in this step were waiting for."""

    def count(self) -> int:
        """A number that is lower than that of every later question."""
        self.number += 1
        return self.number

    @property
    def statistics(self) -> dict[str, int]:
        """What is under way, for metrics."""
        return {
            "questions": self._questions,
            "reads": sum(lane.under_way for lane in self._lanes),
            "waiting": sum(lane.waiting for lane in self._lanes),
        }

    # What is wanted.

    def bring(self, reads: Iterable[FarRead], done: Callable[[], None]) -> None:
        """Have all of these asked for; `done` is called in the step in which the last one ends."""
        bring = RequestReads(done)
        for read in reads:
            self._want(read.ask, bring)
        if not bring.left:
            done()

    def want_states(self, keys: Iterable[LogKey]) -> None:
        """Ask where these partitions stand, for no request's sake."""
        for key in keys:
            self._states.setdefault(key, [])

    def _want(self, ask: Ask, bring: RequestReads) -> None:
        if isinstance(ask, BytesOf):
            for object_key, position, length in ask.ranges:
                self._want_bytes(object_key, (position, length), ask.is_far, bring)
            return
        bring.left += 1
        if isinstance(ask, StateOf):
            self._states.setdefault(ask.key, []).append(bring)
        elif isinstance(ask, FactsOf | ClaimsOf):
            self._others.setdefault(ask, []).append(bring)
        elif isinstance(ask, RunByTime):
            self._times.setdefault((ask.key, ask.timestamp, ask.first), []).append(bring)
        else:
            assert isinstance(ask, RunsOf)
            wanted = Wanted(*ask)
            known = self._under_way.get(wanted)
            if known is None:
                known = self._runs.setdefault(wanted, [])
            known.append(bring)

    def _want_bytes(self, object_key: str, where: Range, is_far: bool, bring: RequestReads) -> None:
        bring.left += 1
        self.blocks.pin(object_key)
        bring.pinned.append(object_key)
        known = self._under_way.get((object_key, where))
        if known is None:
            known = self._lanes[is_far].wants(object_key, where)
        known.append(bring)

    # What is sent.

    def send(self) -> None:
        """Make effects of what is wanted, as far as calls may be under way."""
        self._pinned, pinned = [], self._pinned
        for object_key in pinned:
            self.blocks.unpin(object_key)
        if pinned:
            self.blocks.trim()
        while self._questions < MOST_QUESTIONS and self._next_question():
            self._questions += 1
        for is_far, lane in enumerate(self._lanes):
            for object_key, wanted in lane.take():
                self._read(object_key, wanted, bool(is_far))

    def _next_question(self) -> bool:
        if self._states:
            keys = tuple(islice(self._states, MOST_STATES))
            effect: Effect = AskStates(keys, self.count())
            self._asked[effect] = {key: self._states.pop(key) for key in keys}
        elif self._runs:
            wanted = tuple(islice(self._runs, MOST_FOUND))
            effect = FindRuns(wanted)
            self._asked[effect] = asked = {each: self._runs.pop(each) for each in wanted}
            self._under_way.update(asked)
        elif self._times:
            (key, timestamp, first), brings = next(iter(self._times.items()))
            del self._times[key, timestamp, first]
            effect = FindByTime(key, timestamp, self.count(), first)
            self._asked[effect] = {key: brings}
        elif self._others:
            ask, brings = next(iter(self._others.items()))
            del self._others[ask]
            effect = LookAtFacts(*ask) if isinstance(ask, FactsOf) else CallClaims(*ask)
            self._asked[effect] = {ask: brings}
        else:
            return False
        self._effects.append(effect)
        return True

    def _read(self, object_key: str, wanted: dict[Range, list[RequestReads]], is_far: bool) -> None:
        effect = ReadObject(object_key, joined(wanted), is_far)
        self._asked[effect] = {(object_key, where): brings for where, brings in wanted.items()}
        self._under_way.update(self._asked[effect])
        self._effects.append(effect)

    # What ended.

    def ended(self, effect: Effect) -> None:
        """A call has ended and its answer is taken: those who waited go on."""
        asked = self._asked.pop(effect)
        for name in asked:
            self._under_way.pop(name, None)
        if isinstance(effect, ReadObject):
            self._lanes[effect.is_far].ended(where for _, where in asked)
        else:
            self._questions -= 1
        for brings in asked.values():
            for bring in brings:
                bring.left -= 1
                if not bring.left:
                    self._pinned += bring.pinned  # until the end of this step, which reads them
                    bring.done()
