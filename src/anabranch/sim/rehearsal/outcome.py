"""What came of each event of a rehearsal, without times: so that real processes can be held to it.

What: a row an event says what changed in the watched partition's metadata, in order, who leads and
is in sync when that had come to rest, how far each log is, what is served, and what a client was
told of what it sent. Why without times: machines are slower than simulated ones, and what matters
is what happens and in which order, not when.

Rule kept: the same events give the same text, whichever way the rows were made. Events of one
moment are one row, since nothing can be seen between them. Not here: the transcript with its times
(`transcript.py`), rows of real processes (`testing/rehearsal`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import NamedTuple

from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.sim.cluster import Watcher
from anabranch.sim.rehearsal.answers import Condition, Place
from anabranch.sim.rehearsal.model import Action, Event, Rehearsal
from anabranch.sim.rehearsal.producer import UNANSWERED, Sent
from anabranch.sim.rehearsal.stage import Stage
from anabranch.sim.rehearsal.transcript import (
    BROKER_WIDTH,
    answer,
    broker_titles,
    describe,
    difference,
    ids,
    log_of,
    ranges,
)

BEGIN = "the rehearsal begins"
JOIN = re.compile(r"\d+ into the ISR")
WHAT_WIDTH = 50
SERVES_WIDTH = 18

NOTHING, READS, ALL = "nothing", "reads", "reads and writes"
"""What a partition serves: writes are those with acks=all."""


_SERVED = {Condition.OFFLINE: NOTHING, Condition.READ_ONLY: READS, None: ALL}


@dataclass(slots=True)
class State:
    """What is seen of the watched partition at a moment."""

    partition: PartitionImage
    logs: tuple[str, ...]
    """`high watermark/end offset`, `down`, `frozen`, or a dash for none, by broker id."""
    serves: str

    @property
    def columns(self) -> str:
        """As a table shows it."""
        state = self.partition
        leader = "none" if state.leader < 0 else str(state.leader)
        elected = f"{leader:<6} {state.leader_epoch:<5} {ids(state.isr):<7} {ids(state.elr):<5}"
        logs = "".join(f"{each:<{BROKER_WIDTH}}" for each in self.logs)
        return f"{elected} {logs} {self.serves:<{SERVES_WIDTH}}"


@dataclass(slots=True)
class Row:
    """One event, or several of one moment, and what came of it."""

    what: str
    changes: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    """Logs that were cut where they left the leader's history."""
    state: State | None = None
    told: list[str] = field(default_factory=list)

    @property
    def at_rest(self) -> str:
        """What of it can be seen when it has come to rest: all but answers that are still due."""
        assert self.state is not None
        return "\n".join([self.state.columns, *self._settled, *sorted(self.cuts)])

    @property
    def _settled(self) -> list[str]:
        """The changes; of replicas that join one after another, chance says which is first."""
        runs = groupby(self.changes, key=lambda each: bool(JOIN.fullmatch(each)))
        ordered = [sorted(run) if is_join else list(run) for is_join, run in runs]
        return [each for run in ordered for each in run]

    def parts(self, brokers: tuple[int, ...]) -> dict[str, str]:
        """All that the row says, by what it is about."""
        assert self.state is not None
        partition = self.state.partition
        return {
            "leader": str(partition.leader),
            "leader epoch": str(partition.leader_epoch),
            "ISR": ids(partition.isr),
            "ELR": ids(partition.elr),
            **{f"broker {each}": log for each, log in zip(brokers, self.state.logs, strict=True)},
            "served": self.state.serves,
            "changes": "; then ".join(self._settled),
            "cuts": "; ".join(sorted(self.cuts)),
            "response to client": "; ".join(self.told),
        }

    @property
    def lines(self) -> list[str]:
        """The row and, below it, what changed."""
        assert self.state is not None
        line = f"{self.what:<{WHAT_WIDTH}} {self.state.columns} {'; '.join(self.told)}".rstrip()
        return [line, *(f"    {each}" for each in (*self._settled, *sorted(self.cuts)))]


class Difference(NamedTuple):
    """Something that came of an event otherwise than rehearsed; "" is nothing."""

    event: str
    what: str
    rehearsed: str
    seen: str

    @property
    def sentence(self) -> str:
        """As it is printed."""
        rehearsed, seen = self.rehearsed or "nothing", self.seen or "nothing"
        return f"{self.event}: {self.what}: rehearsed {rehearsed}; seen {seen}"


def differences(rehearsed: Outcome, seen: Outcome) -> list[Difference]:
    """What differs, event by event, in order."""
    brokers = watched(rehearsed.plan)
    found: list[Difference] = []
    for mine, theirs in zip_longest(rehearsed.rows, seen.rows):
        if theirs is None:
            found.append(Difference(mine.what, "the event", mine.what, ""))
            continue
        if mine is None:
            found.append(Difference(theirs.what, "the event", "", theirs.what))
            continue
        there = theirs.parts(brokers)
        found += [
            Difference(mine.what, what, value, there[what])
            for what, value in mine.parts(brokers).items()
            if value != there[what]
        ]
    if rehearsed.lost != seen.lost:
        lost = (ranges(rehearsed.lost), ranges(seen.lost))
        found.append(Difference("at the end", "offsets of acknowledged records lost", *lost))
    return found


@dataclass(slots=True)
class Outcome:
    """All rows, and which acknowledged offsets of the watched partition are lost."""

    plan: Rehearsal
    rows: list[Row]
    lost: tuple[int, ...] = ()

    def text(self) -> str:
        """As it is printed and compared."""
        topic, index = self.plan.watch
        brokers = broker_titles(self.plan)
        head = (
            f"{'what happens':<{WHAT_WIDTH}} {'leader':<6} {'epoch':<5} {'ISR':<7} {'ELR':<5} "
            f"{brokers} {'served':<{SERVES_WIDTH}} response to client"
        )
        lost = f" (offsets {ranges(self.lost)})" if self.lost else ""
        lines = [line for row in self.rows for line in row.lines]
        end = f"Acknowledged records lost: {len(self.lost)}{lost}"
        return "\n".join([f"{topic}-{index}", "", head, *lines, "", end]) + "\n"


def cut(broker: int, before: int, after: int) -> str:
    """A log that got shorter, in words."""
    return f"broker {broker} truncates its log from {before} to {after}"


def watched(plan: Rehearsal) -> tuple[int, ...]:
    """The brokers that are shown for the watched partition, by id."""
    return plan.seen_by(*plan.watch)


def moments(plan: Rehearsal) -> list[list[Event]]:
    """The events, those of one moment together."""
    found: dict[int, list[Event]] = {}
    for event in plan.events:
        found.setdefault(event.at_us, []).append(event)
    return [found[at_us] for at_us in sorted(found)]


def title(events: list[tuple[Event, tuple[int, ...]]]) -> str:
    """What a row is called: its events, each with the brokers that were meant."""
    return "; ".join(event.says or describe(event, brokers) for event, brokers in events)


def rehearsed(plan: Rehearsal, written: Rehearsal | None = None) -> Outcome:
    """Simulate a plan and write down what came of it, in a row for each moment of it, or of the
    plan as it was `written`."""
    stage = Stage(plan)
    watch = _Watch(stage, [events[0].at_us for events in moments(written or plan)])
    stage.run()
    watch.close()
    watch.fill_answers()
    lost = [
        offset
        for loss in stage.answers().losses
        if loss.place == plan.watch
        for offset in loss.offsets
    ]
    return Outcome(plan, watch.rows, tuple(sorted(lost)))


class _Decisions(Watcher):
    """Tells each change of a partition by one committed batch, which is one decision. How many
    batches a node reads at once depends on when it asks."""

    def __init__(
        self, place: Place, changed: Callable[[PartitionImage, PartitionImage], None]
    ) -> None:
        self._place = place
        self._changed = changed
        self._image = MetadataImage.empty()

    def committed(
        self,
        records: tuple[MetadataRecord, ...],
        first_offset: int,
        end_offset: int,
        epoch: int,
    ) -> None:
        """See Watcher."""
        before = self._image.partition(*self._place)
        self._image, _ = replay_batch(self._image, records, end_offset - 1, epoch)
        state = self._image.partition(*self._place)
        if before is not None and state is not None:
            self._changed(before, state)


class _Watch:
    """Fills rows while a stage runs."""

    def __init__(self, stage: Stage, moments_us: list[int]) -> None:
        self.stage = stage
        self.moments_us = moments_us
        self.place: Place = stage.plan.watch
        self.rows: list[Row] = []
        self._events: list[tuple[Event, tuple[int, ...]]] = []
        self._sends: list[Row] = []
        self._before = 0
        stage.on_begin = self._begin
        stage.on_event = self._event
        stage.cluster.checks.append(_Decisions(self.place, self._changed))
        stage.probe.on_truncated = self._truncated

    def _begin(self) -> None:
        self.rows.append(Row(BEGIN))
        self._before = len(self._log)

    @property
    def _log(self) -> list[Sent]:
        return [sent for sent in self.stage.clients[self.place[0]].log if sent.place == self.place]

    def _event(self, event: Event, brokers: tuple[int, ...]) -> None:
        if bisect_right(self.moments_us, event.at_us) == len(self.rows):
            self.close()
            self.rows.append(Row(""))
            self._events = []
        self._events.append((event, brokers))
        row = self.rows[-1]
        row.what = title(self._events)
        self.stage.on_look = row.told.append
        if event.action is Action.SEND and (event.topic, event.partition) == self.place:
            self._sends.append(row)

    def _changed(self, before: PartitionImage, state: PartitionImage) -> None:
        if self.rows:
            what = difference(before, state)
            if what:
                self.rows[-1].changes.append(what)

    def _truncated(self, broker: int, place: Place, before: int, after: int) -> None:
        if place == self.place and before > after and self.rows:
            self.rows[-1].cuts.append(cut(broker, before, after))

    def close(self) -> None:
        """What is seen now is what came of the last row."""
        stage, place = self.stage, self.place
        serves = _SERVED[stage.probe.service(place)]
        logs = tuple(log_of(stage, each, place) for each in watched(stage.plan))
        self.rows[-1].state = State(stage.probe.states[place], logs, serves)

    def fill_answers(self) -> None:
        """Each batch's answer stands in the row in which it was sent."""
        for row, sent in zip(self._sends, self._log[self._before :], strict=False):
            sent.told = sent.told or UNANSWERED
            row.told.append(answer(sent))
