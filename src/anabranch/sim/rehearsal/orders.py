"""Orders of one moment: a file says that two brokers end at 20 s, and not which is missed first.

What: `Foretold` holds the outcome of a plan as it is written. Where something else is seen, it
simulates the plan again with the brokers of one moment in other orders, and keeps the outcome that
begins as what was seen. Why: on real processes chance orders what one moment does, and a simulation
follows one order only; each order that the simulation can follow is right.

Nodes that start while no other runs have no controller yet: the first one becomes it, and a
process needs any time from its controller's start until it registers. So that varies too: whom the
new controller fences before it has registered, and the order in which all register.

Rule kept: nothing varies but the order of brokers in a moment and the times between what they do;
at most `TRIES` orders are simulated, those first in which brokers leave the ISR as was seen. A plan
without several brokers in one moment has one outcome. Not here: how outcomes are compared
(`outcome.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, combinations, cycle, groupby, permutations, product
from operator import itemgetter

from anabranch.sim.rehearsal.model import Action, BrokerChoice, Event, Rehearsal
from anabranch.sim.rehearsal.outcome import Outcome, Row, moments, rehearsed

TRIES = 300
"""Simulations of one plan at most. A moment at which three brokers start without a controller has
294 orders, and each simulation takes some tenths of a second."""
LEFT = re.compile(r"([\d,]+) out of the ISR")
LONGER_US = 45_000_000
"""Another order may come to rest later: a follower that dialled a machine without power notices
after 30 s."""
ALL_ORDERS_OF = 3
"""Brokers of one moment of which every order is tried: four have 24."""
APART_US = (10_000, 600_000, 3_000_000)
"""A moment's brokers follow each other at once; or as processes start, so that a controller has
asked for the others before they serve; or further apart than two heartbeats are, so that sessions
end in this order too."""
ASKED_US = 160_000
"""About when a controller that starts with its brokers asks for those it has not heard from: it
waits for `hints.PROBE_AFTER_MS`."""
ANSWERS_US = 240_000
"""How long the answers take, one after another, and the brokers that register meanwhile: answers
count for `hints.REDIAL_MS`."""
NO_ANSWER_US = 1_000_000
"""Of a broker that is not fenced before it registers."""
LATE_US = 500_000
"""When the first one registers that was fenced before."""
LATER_US = (2_000, 400_000)
"""From each of those to the next: before it is let in, or after."""
CHANGED_TOGETHER = 2
"""Moments of which another order is tried together."""
ON_BROKERS = frozenset(
    {
        Action.KILL, Action.POWER_LOSS, Action.PAUSE, Action.RESUME, Action.START,
        Action.SHUT_DOWN, Action.RESTART, Action.WIPE,
    }
)  # fmt: skip
"""What happens to each broker by itself. A roll has an order of its own."""
_ENDS = frozenset({Action.KILL, Action.POWER_LOSS, Action.PAUSE, Action.SHUT_DOWN})
"""What leaves no broker there that could be controller."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a node starts, beside others."""

    joins_us: int
    """How long after its start it registers."""
    answers_us: int
    """How long its machine takes to answer when it is dialled."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The order of the brokers of one moment, in which they leave the ISR as a rule, and the time
    from each to the next; of nodes that start together, how each of them does."""

    brokers: tuple[int, ...]
    apart_us: tuple[int, ...]
    paces: tuple[Pace, ...] = ()

    @property
    def text(self) -> str:
        """As a person is told."""
        named = ", then ".join(map(str, self.brokers))
        if not self.paces:
            return named
        registered = sorted(self.brokers, key=lambda each: self.pace(each).joins_us)
        return f"{named} left the ISR; {', then '.join(map(str, registered))} registered"

    def pace(self, broker: int) -> Pace:
        """How one of the nodes starts."""
        return self.paces[self.brokers.index(broker)]


Turns = tuple[tuple[int, Turn], ...]
"""By the number of the moment, rising; moments that are not named happen as written."""


class Foretold:
    """What comes of a plan. `met` is the outcome that agrees with what was seen so far."""

    def __init__(self, written: Outcome) -> None:
        self.written = written
        self.met = written
        self._moments = list(zip(moments(written.plan), nobody_runs(written.plan), strict=True))
        self._turns: Turns = ()
        self._known: dict[Turns, Outcome] = {(): written}

    @property
    def order(self) -> str:
        """The order that was met, where it is not as written: a clause for each moment."""
        rows = self.written.rows
        return "; ".join(f"{rows[number + 1].what}: {turn.text}" for number, turn in self._turns)

    def search(self, rows: Sequence[Row]) -> bool:
        """Whether an order gives rows that begin as these; its outcome is then `met`. May take
        TRIES simulations."""
        for turns, outcome in self._outcomes(rows):
            if begins(outcome, rows):
                self._turns, self.met = turns, outcome
                return True
        return False

    def _outcomes(self, rows: Sequence[Row]) -> Iterator[tuple[Turns, Outcome]]:
        """Outcomes that differ in the first moments: the known ones, and then new ones."""
        yield from list(self._known.items())
        for turns in _neighbours(dict(self._turns), self._choices(rows)):
            if len(self._known) > TRIES:
                return
            if turns not in self._known:
                self._known[turns] = self._simulated(turns)
                yield turns, self._known[turns]

    def _choices(self, rows: Sequence[Row]) -> dict[int, list[Turn]]:
        """Of each moment that has been seen, those first that leave the ISR as was seen."""
        found: dict[int, list[Turn]] = {}
        for number, row in enumerate(rows[1:]):
            events, nobody = self._moments[number]
            turns = choices(events, nobody_runs=nobody)
            if turns:
                noticed = as_noticed(turns[0].brokers, row.changes)
                found[number] = sorted(turns, key=lambda each: each.brokers != noticed)
        return found

    def _simulated(self, turns: Turns) -> Outcome:
        plan = self.written.plan
        outcome = rehearsed(in_turns(plan, dict(turns)), plan)
        for row, written in zip(outcome.rows, self.written.rows, strict=False):
            row.what = written.what
        return replace(outcome, plan=plan)


def as_noticed(brokers: Iterable[int], changes: Iterable[str]) -> tuple[int, ...]:
    """Brokers in the order in which they leave the ISR by these changes, the others last.

    A controller hears of the deaths of one moment one after the other, in any order, and what
    follows differs: the last to leave the ISR is eligible to lead."""
    left = [each for line in changes for ids in LEFT.findall(line) for each in ids.split(",")]
    return tuple(
        sorted(brokers, key=lambda each: left.index(f"{each}") if f"{each}" in left else len(left))
    )


def begins(outcome: Outcome, rows: Sequence[Row]) -> bool:
    """Whether an outcome begins with rows that came to rest like these."""
    told = outcome.rows[: len(rows)]
    if len(told) < len(rows):  # a check of the simulator has ended it
        return False
    return all(mine.at_rest == seen.at_rest for mine, seen in zip(told, rows, strict=True))


def choices(events: Sequence[Event], *, nobody_runs: bool = False) -> list[Turn]:
    """The orders in which the brokers of one moment may come; none where there is one broker.
    Nodes that start while `nobody_runs` have no controller yet."""
    found: set[int] = set()
    for on_brokers, group in groupby(events, key=_is_on_brokers):
        together = {each for event in group for each in _who(event)} if on_brokers else set()
        found |= together if len(together) > 1 else set()
    apart = [
        Turn(order, apart_us)
        for order in _orders(sorted(found))
        for apart_us in product(APART_US, repeat=len(order) - 1)
    ]
    return [*(_starts(sorted(found)) if nobody_runs else ()), *apart]


def nobody_runs(plan: Rehearsal) -> list[bool]:
    """Of each moment, whether all that happens is starts of nodes while none runs, by the file."""
    running, told = set(plan.brokers) - set(plan.later), []
    for events in moments(plan):
        actions = {each.action for each in events}
        told.append(not running and actions == {Action.START})
        for event in events:
            if event.action in _ENDS:
                running -= set(_who(event))
            elif event.action is not Action.CUT:
                running |= set(_who(event))
    return told


def _starts(brokers: list[int]) -> Iterator[Turn]:
    """Ways in which nodes that start together leave the ISR and register: the new controller finds
    nobody at the addresses of some and fences them, before they register in any order; the others
    register before they are found missing."""
    every = len(brokers) <= ALL_ORDERS_OF
    for order in _orders(brokers):
        sets = chain.from_iterable(combinations(order, n) for n in range(len(order) + 1))
        for late_us in chain.from_iterable(_late(fenced, every=every) for fenced in sets):
            yield Turn(order, (0,), tuple(_paces(order, late_us)))


def _paces(order: tuple[int, ...], late_us: Mapping[int, int]) -> Iterator[Pace]:
    """How each node starts; `late_us` is when those register that are fenced before."""
    step_us = ANSWERS_US // len(order)
    for place, each in enumerate(order, start=1):
        if each in late_us:
            yield Pace(late_us[each], place * step_us)
        else:
            yield Pace(ASKED_US + place * step_us, NO_ANSWER_US)


def _late(fenced: tuple[int, ...], *, every: bool) -> Iterator[dict[int, int]]:
    """When each of the brokers that were fenced registers."""
    steps = max(len(fenced) - 1, 0)
    ways = list(product(LATER_US, repeat=steps) if every else ((us,) * steps for us in LATER_US))
    for order in permutations(fenced) if every else (fenced,):
        for way in ways if len(fenced) > 1 else ways[:1]:
            yield dict(zip(order, accumulate((LATE_US, *way)), strict=False))


def _orders(brokers: list[int]) -> list[tuple[int, ...]]:
    """All orders of a few brokers; of more, those in which each is once first and once last."""
    if len(brokers) < 2:
        return []
    if len(brokers) <= ALL_ORDERS_OF:
        return list(permutations(brokers))
    ways = (tuple(brokers), tuple(reversed(brokers)))
    return [way[at:] + way[:at] for at in range(len(brokers)) for way in ways]


def in_turns(plan: Rehearsal, turns: Mapping[int, Turn]) -> Rehearsal:
    """A plan in which the brokers of some moments come one after another, and that ends later."""
    found: list[Event] = []
    groups = moments(plan)
    ends_us = [*(group[0].at_us for group in groups[1:]), plan.length_us]
    for number, (events, end_us) in enumerate(zip(groups, ends_us, strict=True)):
        turn = turns.get(number)
        found += events if turn is None else _apart(events, turn, end_us)
    return replace(plan, events=tuple(found), length_us=plan.length_us + LONGER_US)


def _apart(events: Sequence[Event], turn: Turn, end_us: int) -> list[Event]:
    """The events of a moment, one broker after another, before the next moment; what the file
    says after them follows them."""
    at_us = events[0].at_us
    most_us = (end_us - at_us) // (2 * sum(len(_who(each)) for each in events))
    rank = {each: place for place, each in enumerate(turn.brokers)}
    found: list[Event] = []
    for on_brokers, group in groupby(events, key=_is_on_brokers):
        if not on_brokers:
            found += [replace(each, at_us=at_us) for each in group]
            continue
        single = sorted(_one_by_one(group), key=lambda each: rank.get(_who(each)[0], 0))
        started = [
            broker for each in single if each.action is Action.START for broker in _who(each)
        ]
        single[0] = replace(single[0], powers=tuple(started))
        single = [_paced(each, turn) for each in single]
        for apart_us, each in zip(chain((0,), cycle(turn.apart_us)), single, strict=False):
            at_us += min(apart_us, most_us)
            found.append(replace(each, at_us=at_us))
    return found


def _paced(event: Event, turn: Turn) -> Event:
    """What happens to one broker, with the times that the turn says."""
    if not turn.paces:
        return event
    (broker,) = _who(event)
    pace = turn.pace(broker)
    return replace(event, joins_after_us=pace.joins_us, answers_after_us=pace.answers_us)


def _neighbours(turns: dict[int, Turn], choices: Mapping[int, list[Turn]]) -> Iterator[Turns]:
    """Turns in which one moment differs, the last one first, and then two."""
    last_first = sorted(choices, reverse=True)
    for count in range(1, CHANGED_TOGETHER + 1):
        for numbers in combinations(last_first, count):
            for changed in product(*(choices[each] for each in numbers)):
                together = turns | dict(zip(numbers, changed, strict=True))
                yield tuple(sorted(together.items(), key=itemgetter(0)))


def _is_on_brokers(event: Event) -> bool:
    """Whether it happens to brokers that the file names. Which ones a role means, and how many, is
    known only when it happens."""
    return event.action in ON_BROKERS and bool(_who(event))


def _who(event: Event) -> tuple[int, ...]:
    return () if event.who is None else event.who.brokers


def _one_by_one(events: Iterable[Event]) -> list[Event]:
    """Each event once for each of its brokers."""
    return [
        replace(event, who=BrokerChoice(f"{each}", (each,)))
        for event in events
        for each in _who(event)
    ]
