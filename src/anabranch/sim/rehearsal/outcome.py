"""What each event of a rehearsal led to, in terms that real processes can be compared with.

What: a row an event says who leads the watched partition once it has come to rest, what is served,
and for how long it was offline or read-only on the way; at the end, which acknowledged records are
lost. Times are shown side by side and never judged: machines are slower than simulated ones.

Rule kept: both sides make rows by the same definitions. Events of one moment are one row. Where
several brokers end or start in one moment, chance decides which is noticed first: from then on only
whether there is a leader is compared, not which. Not here: the transcript with each step
(`transcript.py`), rows of real processes (`testing/rehearsal`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from anabranch.core.types import NO_LEADER
from anabranch.sim.rehearsal.answers import Condition, Place, Span
from anabranch.sim.rehearsal.model import Action, Event, Rehearsal
from anabranch.sim.rehearsal.stage import Stage
from anabranch.sim.rehearsal.transcript import describe, log_of, ranges
from anabranch.sim.rehearsal.units import SECOND_US, say_duration

BEGIN = "the rehearsal begins"
TABLE = ("event", "leader", "served", "offline for", "read-only for")
NOTHING, READS, ALL = "nothing", "reads", "reads and writes"
"""What a partition serves: writes are those with acks=all."""

SERVED = {Condition.OFFLINE: NOTHING, Condition.READ_ONLY: READS, None: ALL}
ON_BROKERS = frozenset(
    {
        Action.KILL, Action.POWER_LOSS, Action.PAUSE, Action.RESUME, Action.START,
        Action.SHUT_DOWN, Action.RESTART, Action.WIPE,
    }
)  # fmt: skip
"""What happens to each broker by itself. A roll has an order of its own."""


@dataclass(frozen=True, slots=True)
class State:
    """What is seen of the watched partition at a moment. Two runs wait for equal states."""

    leader: int = NO_LEADER
    isr: frozenset[int] = frozenset()
    elr: frozenset[int] = frozenset()
    logs: tuple[str, ...] = ()
    """`high watermark/end offset`, `down`, `frozen`, or a dash for none, by broker id."""
    serves: str = NOTHING

    @property
    def shape(self) -> tuple[object, ...]:
        """The state without which broker is which."""
        return self.leader >= 0, len(self.isr), len(self.elr), sorted(self.logs), self.serves


@dataclass(slots=True)
class Row:
    """One event, or several of one moment, and what they led to."""

    what: str
    state: State = State()
    lasted_us: dict[Condition, int] = field(default_factory=dict)
    """How long the partition was offline or read-only from this event to the next."""

    def count(self, condition: Condition | None, us: int) -> None:
        """A condition lasted so much longer; None is none."""
        if condition is not None:
            self.lasted_us[condition] = self.lasted_us.get(condition, 0) + us

    def duration(self, condition: Condition) -> str:
        """How long a condition lasted that is over; empty for none."""
        us = self.lasted_us.get(condition, 0)
        is_over = SERVED.get(condition) != self.state.serves
        return say_duration(us / SECOND_US) if us and is_over else ""


@dataclass(slots=True)
class Outcome:
    """All rows, and which acknowledged offsets of the watched partition are lost."""

    plan: Rehearsal
    rows: list[Row]
    lost: tuple[int, ...] = ()


class Difference(NamedTuple):
    """Something that an event led to otherwise than rehearsed."""

    event: str
    what: str
    rehearsed: str
    seen: str

    @property
    def sentence(self) -> str:
        """As it is printed."""
        return f"{self.event}: {self.what}: rehearsed {self.rehearsed}; seen {self.seen}"


def differences(rehearsed: Outcome, seen: Outcome) -> list[Difference]:
    """What differs in leaders, service and losses, event by event."""
    found: list[Difference] = []
    chance = chance_from(rehearsed.plan)
    for number, (mine, theirs) in enumerate(zip_longest(rehearsed.rows, seen.rows)):
        if mine is None or theirs is None:
            there = mine or theirs
            sides = ("nothing", there.what) if mine is None else (there.what, "nothing")
            found.append(Difference(there.what, "the event", *sides))
            continue
        leaders = mine.state.leader, theirs.state.leader
        is_same = leaders[0] == leaders[1] or (number >= chance and min(leaders) >= 0)
        if not is_same:
            found.append(Difference(mine.what, "leader", *map(leader_text, leaders)))
        if mine.state.serves != theirs.state.serves:
            found.append(Difference(mine.what, "served", mine.state.serves, theirs.state.serves))
    if rehearsed.lost != seen.lost:
        lost = (ranges(rehearsed.lost) or "none", ranges(seen.lost) or "none")
        found.append(Difference("at the end", "offsets of acknowledged records lost", *lost))
    return found


def table(rehearsed: Outcome, seen: Outcome) -> list[tuple[str, ...]]:
    """A line an event as a person compares it: TABLE is what its cells are called. A cell has what
    was seen, and what was rehearsed where that is something else."""
    return [
        (
            theirs.what,
            _both(leader_text(mine.state.leader), leader_text(theirs.state.leader)),
            _both(mine.state.serves, theirs.state.serves),
            *(
                _both(mine.duration(each), theirs.duration(each))
                for each in (Condition.OFFLINE, Condition.READ_ONLY)
            ),
        )
        for mine, theirs in zip(rehearsed.rows, seen.rows, strict=False)
    ]


def _both(rehearsed: str, seen: str) -> str:
    same = f" (rehearsed: {rehearsed or 'not'})" if rehearsed != seen else ""
    return f"{seen or '-'}{same}"


def as_json(outcome: Outcome) -> dict[str, object]:
    """An outcome for programs, with seconds as numbers."""
    return {
        "events": [
            {
                "event": row.what,
                "leader": row.state.leader,
                "served": row.state.serves,
                "offline_seconds": row.lasted_us.get(Condition.OFFLINE, 0) / SECOND_US,
                "read_only_seconds": row.lasted_us.get(Condition.READ_ONLY, 0) / SECOND_US,
            }
            for row in outcome.rows
        ],
        "lost": list(outcome.lost),
    }


def is_at_rest(rehearsed: Outcome, number: int, state: State) -> bool:
    """Whether processes have reached what a row of the rehearsal came to rest at."""
    if number >= len(rehearsed.rows):  # a check of the simulator has ended it
        return False
    wanted = rehearsed.rows[number].state
    return state == wanted or (
        number >= chance_from(rehearsed.plan) and state.shape == wanted.shape
    )


def leader_text(leader: int) -> str:
    """A leader's id, or `none`."""
    return "none" if leader < 0 else str(leader)


def watched(plan: Rehearsal) -> tuple[int, ...]:
    """The brokers that matter to the watched partition, by id."""
    return plan.seen_by(*plan.watch)


def moments(plan: Rehearsal) -> list[list[Event]]:
    """The events, those of one moment together."""
    found: dict[int, list[Event]] = {}
    for event in plan.events:
        found.setdefault(event.at_us, []).append(event)
    return [found[at_us] for at_us in sorted(found)]


def chance_from(plan: Rehearsal) -> int:
    """The number of the first row in which several brokers end or start together."""
    for number, events in enumerate(moments(plan), start=1):
        together = [each for each in events if each.action in ON_BROKERS and each.who is not None]
        if sum(_count(each) for each in together) > 1:
            return number
    return len(plan.events) + 1


def _count(event: Event) -> int:
    """How many brokers an event is of, at least."""
    assert event.who is not None
    return 2 if event.who.role == "followers" else max(len(event.who.brokers), 1)


def title(events: list[tuple[Event, tuple[int, ...]]]) -> str:
    """What a row is called: its events, each with the brokers that were meant."""
    return "; ".join(event.says or describe(event, brokers) for event, brokers in events)


def rehearsed(plan: Rehearsal) -> Outcome:
    """Simulate a plan and write down what each moment of it led to."""
    stage = Stage(plan)
    watch = _Watch(stage)
    stage.run()
    watch.close()
    answers = stage.answers()
    ends_us = [*watch.begins_us[1:], plan.length_us]
    for row, from_us, to_us in zip(watch.rows, watch.begins_us, ends_us, strict=True):
        for span in answers.spans:
            if span.place == plan.watch:
                row.count(span.condition, _within(span, from_us, to_us))
    losses = [each for each in answers.losses if each.place == plan.watch]
    return Outcome(plan, watch.rows, tuple(sorted(n for each in losses for n in each.offsets)))


def _within(span: Span, from_us: int, to_us: int) -> int:
    """How much of a span lies between two moments."""
    end_us = to_us if span.to_us is None else min(span.to_us, to_us)
    return max(end_us - max(span.from_us, from_us), 0)


class _Watch:
    """Fills rows while a stage runs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.place: Place = stage.plan.watch
        self.rows: list[Row] = []
        self.begins_us: list[int] = []
        self._events: list[tuple[Event, tuple[int, ...]]] = []
        stage.on_begin = self._begin
        stage.on_event = self._event

    def _begin(self) -> None:
        self.rows.append(Row(BEGIN))
        self.begins_us.append(0)

    def _event(self, event: Event, brokers: tuple[int, ...]) -> None:
        if not self._events or self._events[0][0].at_us != event.at_us:
            self.close()
            self.rows.append(Row(""))
            self.begins_us.append(event.at_us)
            self._events = []
        self._events.append((event, brokers))
        self.rows[-1].what = title(self._events)

    def close(self) -> None:
        """What is seen now is what the last row came to rest at."""
        stage, place = self.stage, self.place
        if not self.rows:
            return
        partition = stage.probe.states[place]
        self.rows[-1].state = State(
            leader=partition.leader,
            isr=frozenset(partition.isr),
            elr=frozenset(partition.elr),
            logs=tuple(log_of(stage, each, place) for each in watched(stage.plan)),
            serves=SERVED[stage.probe.service(place)],
        )
