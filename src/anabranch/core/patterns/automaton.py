"""Matches whole texts with a regular expression, in time that grows with their length alone.

What: a pattern becomes a nondeterministic automaton; its sets of states are made into states of a
deterministic one as texts lead to them. Why: an engine that goes back and tries again takes
exponential time for some patterns, and a client chooses the pattern. Rules kept: an automaton has
at most `MOST_STEPS` parts, `MOST_STATES` states are remembered, and after `MOST_WORK` steps a
pattern is given up. Source: Thompson's construction, as in RE2. Not here: syntax.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.core.patterns.syntax import (
    WORD,
    Chars,
    Choice,
    Node,
    PatternError,
    Position,
    Ranges,
    Repeat,
    Sequence,
    parse,
)

MOST_STEPS = 5_000
"""Parts of a pattern, repeated ones counted each time: people write some dozens."""
MOST_STATES = 2_000
"""States that are remembered; then they are made again."""
MOST_WORK = 1_500_000
"""Steps looked at for all texts together: about a second. A pattern whose states are remembered
costs nothing of it."""


class Step(NamedTuple):
    """One step: characters to `next`; or, without any, on to `next` and `other` at a position."""

    ranges: Ranges | None
    next: int
    other: int = -1
    position: str = ""


@dataclass(slots=True)
class State:
    """A set of steps, after a character of a kind ("" at the beginning)."""

    steps: frozenset[int]
    before: str
    after: dict[str, State] = field(default_factory=dict)
    is_match: bool | None = None


NOTHING, NEWLINE, LETTER, OTHER = "", "\n", "w", "o"
MATCH = 0
"""The step at which all is matched."""


class Pattern:
    """A compiled pattern. Raises PatternError when it cannot be read, or is too large."""

    def __init__(self, text: str) -> None:
        self._steps: list[Step] = [Step(None, MATCH)]
        self._work = 0
        self._states: dict[tuple[frozenset[int], str], State] = {}
        first = self._compile(parse(text), MATCH)
        self._start = State(frozenset((first,)), NOTHING)

    # From a tree to steps. Each part knows the step that follows it.

    def _step(self, step: Step) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        """The first step of a part after which `then` follows."""
        self._work += 1  # parts that are nothing may be repeated, too
        if self._work > MOST_STEPS:
            raise PatternError("the pattern is too large")
        match node:
            case Chars(ranges):
                return self._step(Step(ranges, then))
            case Position(kind):
                return self._step(Step(None, then, position=kind))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Choice(parts):
                first, *others = [self._compile(part, then) for part in parts]
                for each in others:
                    first = self._step(Step(None, first, each))
                return first
            case Repeat(part, least, most):
                return self._repeat(part, least, most, then)

    def _repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        end = then
        if most is None:
            then = again = self._step(Step(None, end, end))
            self._steps[again] = Step(None, self._compile(part, again), end)
        for _ in range((most or least) - least):
            then = self._step(Step(None, self._compile(part, then), end))
        for _ in range(least):
            then = self._compile(part, then)
        return then

    # From texts to states.

    def matches(self, text: str) -> bool:
        """Whether all of a text matches. Raises PatternError when that takes too long."""
        state = self._start
        for one in text:
            following = state.after.get(one)
            if following is None:
                following = state.after[one] = self._following(state, one)
            state = following
            if not state.steps:
                return False
        if state.is_match is None:
            state.is_match = MATCH in self._reached(state, NOTHING)
        return state.is_match

    def _following(self, state: State, one: str) -> State:
        kind, code = _kind(one), ord(one)
        found = frozenset(
            self._steps[each].next
            for each in self._reached(state, kind)
            if any(low <= code <= high for low, high in self._steps[each].ranges or ())
        )
        if len(self._states) >= MOST_STATES:
            self._states.clear()
            self._start.after.clear()
        return self._states.setdefault((found, kind), State(found, kind))

    def _reached(self, state: State, after: str) -> set[int]:
        """All steps that are reached without a character, before one of the kind `after`."""
        found, left = set[int](), list(state.steps)
        while left:
            number = left.pop()
            if number in found or number < 0:
                continue
            found.add(number)
            step = self._steps[number]
            if number != MATCH and step.ranges is None and _holds(step, state.before, after):
                left += (step.next, step.other)
        self._work += len(found)
        if self._work > MOST_WORK:
            raise PatternError("the pattern takes too long")
        return found


def _kind(one: str) -> str:
    if one == "\n":
        return NEWLINE
    return LETTER if any(low <= ord(one) <= high for low, high in WORD) else OTHER


def _holds(step: Step, before: str, after: str) -> bool:
    """Whether a position is between characters of these kinds."""
    match step.position:
        case "A":
            return before == NOTHING
        case "z":
            return after == NOTHING
        case "^":
            return before in (NOTHING, NEWLINE)
        case "$":
            return after in (NOTHING, NEWLINE)
        case "b":
            return (before == LETTER) != (after == LETTER)
        case "B":
            return (before == LETTER) == (after == LETTER)
    return True
