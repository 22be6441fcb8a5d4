"""A plan that was handed to the controller, as the metadata has it: its moves and how far each is.

What: one plan at a time, the newest; it is kept when it is over, so that it can be rolled back.
Rules kept: `statuses` names only moves that are not WAITING; a plan is changed by its records
alone (own_records.py), so it survives every controller. Not here: what is done with it
(`core/controller/moves/plan_progress.py`, `core/controller/moves/plans.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import msgspec
from immutables import Map
from msgspec.structs import replace

from anabranch.core.errors import Bug
from anabranch.core.types import TopicId
from anabranch.core.wire import own_records as records
from anabranch.core.wire.schema import Message

Row = tuple[int, ...]
MOVES_A_RECORD = 500
"""Some 100 KB."""


class State(IntEnum):
    """How a plan fares."""

    RUNNING = 1
    PAUSED = 2
    STOPPED = 3
    """By the controller: somebody has to look."""
    DONE = 4
    CANCELLED = 5


OPEN = frozenset({State.RUNNING, State.PAUSED, State.STOPPED})
"""While a plan is in one of these, no other may begin."""


class Status(IntEnum):
    """How far one move is, told in the plan's own direction."""

    WAITING = 0
    UNDER_WAY = 1
    DONE = 2
    GONE = 3
    """The partition was deleted meanwhile."""


class MoveImage(msgspec.Struct, frozen=True, gc=False):
    """One move of a plan, and why it was planned."""

    topic_id: TopicId
    partition: int
    before: Row
    after: Row
    why: str
    because: str


class PlanImage(msgspec.Struct, frozen=True):
    """A plan. `throttle` is in bytes a second, -1 for none; `sentence` says why it is in its
    state. Rolling back, it is `backwards`: its moves go from DONE to WAITING."""

    plan_id: int
    goal: str
    made_at_ms: int
    state: State
    backwards: bool
    most_at_once: int
    throttle: int
    sentence: str
    moves: tuple[MoveImage, ...] = ()
    statuses: Map[int, Status] = Map()
    cordons: tuple[int, ...] = ()
    """Brokers that the plan has cordoned, and that were not before."""

    @property
    def is_open(self) -> bool:
        """Whether it keeps other plans out."""
        return self.state in OPEN

    @property
    def aimed(self) -> Status:
        """What every move shall be in the end."""
        return Status.WAITING if self.backwards else Status.DONE

    @property
    def untouched(self) -> Status:
        """What a move is before it begins."""
        return Status.DONE if self.backwards else Status.WAITING

    def status(self, index: int) -> Status:
        """How far a move is."""
        return self.statuses.get(index, Status.WAITING)

    def under_way(self) -> Iterator[MoveImage]:
        """The moves that began and are not noted as done."""
        return (
            self.moves[index]
            for index, status in sorted(self.statuses.items())
            if status is Status.UNDER_WAY
        )

    def aim(self, move: MoveImage) -> Row:
        """The replicas that the plan wants a partition to have."""
        return move.before if self.backwards else move.after

    def start(self, move: MoveImage) -> Row:
        """The replicas that it should have until its move begins."""
        return move.after if self.backwards else move.before


# Records.


def plan_after(plan: PlanImage | None, record: Message) -> PlanImage | None:
    """The plan after a record about plans; a record that does not fit raises Bug."""
    if isinstance(record, records.PlanRecord):
        return _headed(plan, record)
    if isinstance(record, records.PlanMovesRecord):
        moves = tuple(
            MoveImage(
                TopicId(each.topic_id),
                each.partition_id,
                tuple(each.before),
                tuple(each.after),
                each.why,
                each.because,
            )
            for each in record.moves
        )
        named = _named(plan, record.plan_id)
        return replace(named, moves=named.moves + moves)
    assert isinstance(record, records.PlanProgressRecord)
    return _gone_on(_named(plan, record.plan_id), record)


def _headed(plan: PlanImage | None, record: records.PlanRecord) -> PlanImage | None:
    """A plan comes, changes its state, or is forgotten."""
    if record.plan_id == records.NO_PLAN:
        return None
    is_known = plan is not None and plan.plan_id == record.plan_id
    return PlanImage(
        plan_id=record.plan_id,
        goal=record.goal,
        made_at_ms=record.made_at_ms,
        state=State(record.state),
        backwards=record.backwards,
        most_at_once=record.most_at_once,
        throttle=record.throttle,
        sentence=record.sentence,
        moves=plan.moves if plan is not None and is_known else (),
        statuses=plan.statuses if plan is not None and is_known else Map(),
        cordons=tuple(record.cordons),
    )


def _named(plan: PlanImage | None, plan_id: int) -> PlanImage:
    if plan is None or plan.plan_id != plan_id:
        raise Bug(f"a record names the plan {plan_id}, which is not there")
    return plan


def _gone_on(plan: PlanImage, record: records.PlanProgressRecord) -> PlanImage:
    statuses = plan.statuses.mutate()
    for index in record.moves:
        if not 0 <= index < len(plan.moves):
            raise Bug(f"progress of move {index}, which plan {plan.plan_id} does not have")
        if record.status:
            statuses[index] = Status(record.status)
        else:
            statuses.pop(index, None)
    return replace(plan, statuses=statuses.finish())


def plan_records(plan: PlanImage) -> Iterator[Message]:
    """A plan as the records that make it."""
    yield header_of(plan)
    yield from moves_of(plan)
    by_status: dict[Status, list[int]] = {}
    for index, status in sorted(plan.statuses.items()):
        by_status.setdefault(status, []).append(index)
    for status, indexes in sorted(by_status.items()):
        yield records.PlanProgressRecord(plan_id=plan.plan_id, status=status, moves=indexes)


def header_of(plan: PlanImage) -> records.PlanRecord:
    """The record that says how a plan fares."""
    return records.PlanRecord(
        plan_id=plan.plan_id,
        goal=plan.goal,
        made_at_ms=plan.made_at_ms,
        state=plan.state,
        backwards=plan.backwards,
        most_at_once=plan.most_at_once,
        throttle=plan.throttle,
        sentence=plan.sentence,
        cordons=list(plan.cordons),
    )


def moves_of(plan: PlanImage) -> Iterator[records.PlanMovesRecord]:
    """The records of a plan's moves."""
    for first in range(0, len(plan.moves), MOVES_A_RECORD):
        moves = [
            records.PlanMove(
                topic_id=each.topic_id,
                partition_id=each.partition,
                before=list(each.before),
                after=list(each.after),
                why=each.why,
                because=each.because,
            )
            for each in plan.moves[first : first + MOVES_A_RECORD]
        ]
        yield records.PlanMovesRecord(plan_id=plan.plan_id, moves=moves)
