"""Orders of one moment: a file says that two brokers end at 20 s, and not which is missed first.

What: `Foretold` holds the outcome of a plan as it is written. Where something else is seen, it
simulates the plan again with the brokers of one moment in other orders, and keeps the outcome that
begins as what was seen. Why: on real processes chance orders what one moment does, and a simulation
follows one order only; each order that the simulation can follow is right.

Rule kept: nothing varies but the order of brokers in a moment and the time between them; at most
`TRIES` orders are simulated. A plan without several brokers in one moment has one outcome. Not
here: how outcomes are compared (`outcome.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, cycle, groupby, permutations, product
from operator import itemgetter

from anabranch.sim.rehearsal.model import Action, BrokerChoice, Event, Rehearsal
from anabranch.sim.rehearsal.outcome import Outcome, Row, moments, rehearsed

TRIES = 180
"""Simulations of one plan at most. A moment of three brokers has 54 orders, and each simulation
takes some tenths of a second."""
LONGER_US = 45_000_000
"""Another order may come to rest later: a follower that dialled a machine without power notices
after 30 s."""
ALL_ORDERS_OF = 3
"""Brokers of one moment of which every order is tried: four have 24."""
APART_US = (10_000, 600_000, 3_000_000)
"""A moment's brokers follow each other at once; or as processes start, so that a controller has
asked for the others before they serve; or further apart than two heartbeats are, so that sessions
end in this order too."""
CHANGED_TOGETHER = 2
"""Moments of which another order is tried together."""
ON_BROKERS = frozenset(
    {
        Action.KILL, Action.POWER_LOSS, Action.PAUSE, Action.RESUME, Action.START,
        Action.SHUT_DOWN, Action.RESTART, Action.WIPE,
    }
)  # fmt: skip
"""What happens to each broker by itself. A roll has an order of its own."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The order of the brokers of one moment, and the time from each to the next."""

    brokers: tuple[int, ...]
    apart_us: tuple[int, ...]


Turns = tuple[tuple[int, Turn], ...]
"""By the number of the moment, rising; moments that are not named happen as written."""


class Foretold:
    """What comes of a plan. `met` is the outcome that agrees with what was seen so far."""

    def __init__(self, written: Outcome) -> None:
        self.written = written
        self.met = written
        self._moments = moments(written.plan)
        self._turns: Turns = ()
        self._known: dict[Turns, Outcome] = {(): written}

    @property
    def order(self) -> str:
        """The order that was met, where it is not as written: a clause for each moment."""
        rows = self.written.rows
        return "; ".join(
            f"{rows[number + 1].what}: {', then '.join(map(str, turn.brokers))}"
            for number, turn in self._turns
        )

    def search(self, rows: Sequence[Row]) -> bool:
        """Whether an order gives rows that begin as these; its outcome is then `met`. May take
        TRIES simulations."""
        for turns, outcome in self._outcomes(len(rows) - 1):
            if begins(outcome, rows):
                self._turns, self.met = turns, outcome
                return True
        return False

    def _outcomes(self, count: int) -> Iterator[tuple[Turns, Outcome]]:
        """Outcomes that differ in the first moments: the known ones, and then new ones."""
        yield from list(self._known.items())
        for turns in _neighbours(dict(self._turns), self._choices(count)):
            if len(self._known) > TRIES:
                return
            if turns not in self._known:
                self._known[turns] = self._simulated(turns)
                yield turns, self._known[turns]

    def _choices(self, count: int) -> dict[int, list[Turn]]:
        found = {n: choices(each) for n, each in enumerate(self._moments[:count])}
        return {number: turns for number, turns in found.items() if turns}

    def _simulated(self, turns: Turns) -> Outcome:
        plan = self.written.plan
        outcome = rehearsed(in_turns(plan, dict(turns)), plan)
        for row, written in zip(outcome.rows, self.written.rows, strict=False):
            row.what = written.what
        return replace(outcome, plan=plan)


def begins(outcome: Outcome, rows: Sequence[Row]) -> bool:
    """Whether an outcome begins with rows that came to rest like these."""
    told = outcome.rows[: len(rows)]
    if len(told) < len(rows):  # a check of the simulator has ended it
        return False
    return all(mine.at_rest == seen.at_rest for mine, seen in zip(told, rows, strict=True))


def choices(events: Sequence[Event]) -> list[Turn]:
    """The orders in which the brokers of one moment may come; none where there is one broker."""
    found: set[int] = set()
    for on_brokers, group in groupby(events, key=_is_on_brokers):
        together = {each for event in group for each in _who(event)} if on_brokers else set()
        found |= together if len(together) > 1 else set()
    return [
        Turn(order, apart_us)
        for order in _orders(sorted(found))
        for apart_us in product(APART_US, repeat=len(order) - 1)
    ]


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
        for apart_us, each in zip(chain((0,), cycle(turn.apart_us)), single, strict=False):
            at_us += min(apart_us, most_us)
            found.append(replace(each, at_us=at_us))
    return found


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
