"""Carrying a plan of moves out: what a controller does for it by the clock.

What: every so often the moves of the running plan are looked at: those that are done are noted,
and the next begin while fewer than `most_at_once` are under way. Rules kept: exactly the plan's
moves are made; a partition that somebody else moved stops the plan, with its name, before anything
else begins; moves that need a broker that is down wait and hold nobody up, and only when nothing
else is left to do for PATIENCE_MS the plan stops; everything is in the records, so the next
controller goes on. Cost: nothing but while a plan is running, then a pass over its moves whenever
topics or brokers have changed.

Source: decision 0027. Not here: requests about plans (`plans.py`), single moves (`requests.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_

from msgspec.structs import replace

from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.moves.plan_states import MoveState, blocking_brokers, found, standing
from anabranch.core.controller.moves.plan_throttle import throttle_off
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.controller.moves.requests import move as moved_to
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.metadata.plan_state import MoveImage, PlanImage, State, Status, header_of
from anabranch.core.sentences import named
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.metadata_records import MetadataRecord, PlanProgressRecord

INTERVAL_MS = 500
"""Between two looks."""
MOST_BEGUN = 1000
"""Moves that begin in one look, also of those that need no new replica: one batch stays small."""
PATIENCE_MS = 600_000
"""How long brokers may be down that all remaining moves wait for: longer than a restart."""


def is_carried(plan: PlanImage | None) -> bool:
    """Whether there is anything to do for it."""
    return plan is not None and plan.state is State.RUNNING


class PlanDuty:
    """When the plan is looked at next, on the steady clock, and since when it is stuck."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms + INTERVAL_MS
        self._stuck_since_ms: int | None = None
        self._idle: tuple[object, ...] = ()
        """The plan, topics and brokers with which there was nothing to do but to wait."""

    def due(
        self, state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
    ) -> Result[None] | None:
        """What is done for the plan now, if anything is."""
        if now_ms < self.due_ms:
            return None
        self.due_ms = now_ms + INTERVAL_MS
        plan = state.image.plan
        if plan is None or plan.state is not State.RUNNING:
            self._stuck_since_ms = None
            return None
        seen = plan, state.image.topics_by_id, state.image.brokers
        is_idle = bool(self._idle) and all(map(is_, seen, self._idle))
        if is_idle and self._stuck_since_ms is None:
            return None
        step = Step(Consequences(state, config, sessions.suspects), plan)
        step.look()
        if not step.stopped_by:
            step.begin()
        if not step.is_stuck:
            self._stuck_since_ms = None
        elif self._stuck_since_ms is None:
            self._stuck_since_ms = now_ms
        is_over = self._stuck_since_ms is not None and (
            now_ms - self._stuck_since_ms >= PATIENCE_MS
        )
        result = step.result(patience_is_over=is_over)
        self._idle = seen if result is None else ()
        return result


class Step:
    """One look at a running plan."""

    def __init__(self, consequences: Consequences, plan: PlanImage) -> None:
        self._consequences = consequences
        self._state = consequences.state
        self._plan = plan
        self._records: list[MetadataRecord] = []
        self._reasons: list[Reason] = []
        self._noted: dict[Status, list[int]] = {}
        self._candidates: list[int] = []
        self._under_way = 0
        self._copying = 0
        """Those of them that wait for no broker that is down."""
        self._begun = 0
        self.stopped_by: list[str] = []
        """What somebody else did, in sentences."""
        self.down: set[int] = set()
        """Brokers that moves wait for."""

    @property
    def is_stuck(self) -> bool:
        """Whether all that is left waits for brokers that are down."""
        return bool(self.down) and not self._copying and not self._begun

    def look(self) -> None:
        """See how far every move is."""
        plan = self._plan
        for index, move in enumerate(plan.moves):
            status = plan.status(index)
            if status in (plan.aimed, Status.GONE):
                continue
            partition = found(self._state, move)
            now = standing(partition, plan, move, status)
            if now is MoveState.GONE:
                self._note(index, Status.GONE)
            elif now is MoveState.AT_AIM:
                self._note(index, plan.aimed)
            elif now is MoveState.GOING:
                assert partition is not None
                self._goes(index, move, partition, status)
            elif now is MoveState.AT_START and status is plan.untouched:
                self._candidates.append(index)
            else:
                assert partition is not None
                self.stopped_by.append(self._who_else(move, partition))

    def begin(self) -> None:
        """Begin the next moves."""
        left: list[int] = []
        for index in self._candidates:
            if self._copying >= self._plan.most_at_once or self._begun == MOST_BEGUN:
                left.append(index)
                continue
            move = self._plan.moves[index]
            partition = found(self._state, move)
            assert partition is not None  # as it was a moment ago
            down = blocking_brokers(self._state, self._plan, move, partition)
            self.down.update(down)
            if down or not self._begin(index):
                left.append(index)
        self._candidates = left

    def result(self, *, patience_is_over: bool) -> Result[None] | None:
        """What to write down, None when nothing has changed."""
        plan = self._plan
        for status, indexes in sorted(self._noted.items()):
            record = PlanProgressRecord(plan_id=plan.plan_id, status=status, moves=indexes)
            self._records.append(record)
        if self.stopped_by:
            more = f", and {len(self.stopped_by) - 1} more" if len(self.stopped_by) > 1 else ""
            self._end(State.STOPPED, f"{self.stopped_by[0]}{more}")
        elif not self._candidates and not self._under_way:
            whose = "their previous" if plan.backwards else "the planned"
            which = "partitions of topics that still exist" if self._has_gone else "partitions"
            self._end(State.DONE, f"all {which} have {whose} replicas")
        elif patience_is_over:
            brokers = named(sorted(self.down), "broker")
            self._end(State.STOPPED, f"all remaining moves wait for {brokers}")
        if not self._records:
            return None
        return Result(tuple(self._records), None, tuple(self._reasons))

    @property
    def _has_gone(self) -> bool:
        """Whether a topic of the plan was deleted."""
        return Status.GONE in self._noted or Status.GONE in self._plan.statuses.values()

    def _note(self, index: int, status: Status) -> None:
        self._noted.setdefault(status, []).append(index)

    def _goes(self, index: int, move: MoveImage, partition: PartitionImage, status: Status) -> None:
        self._under_way += 1
        if status is not Status.UNDER_WAY:
            self._note(index, Status.UNDER_WAY)
        down = blocking_brokers(self._state, self._plan, move, partition)
        self.down.update(down)
        self._copying += not down

    def _begin(self, index: int) -> bool:
        """Begin one move; whether that could be."""
        plan, move = self._plan, self._plan.moves[index]
        key = (move.topic_id, move.partition)
        name = self._state.topic_name(key)
        because = "rolled back" if plan.backwards else move.because
        try:
            moved = moved_to(
                self._consequences, name, move.partition, plan.aim(move), because=because
            )
        except ClientFault as fault:
            self.stopped_by.append(f"{name}-{move.partition} cannot move: {fault.message}")
            return False
        self._records += moved.records
        self._reasons += moved.reasons
        self._begun += 1
        if not moved.goes_on:
            self._note(index, plan.aimed)
        else:
            self._note(index, Status.UNDER_WAY)
            self._under_way += 1
            self._copying += 1
        return True

    def _end(self, state: State, sentence: str) -> None:
        plan = replace(self._plan, state=state, sentence=sentence)
        self._records += changed(self._state, plan)
        self._reasons.append(plan_reason(plan))

    def _who_else(self, move: MoveImage, partition: PartitionImage) -> str:
        place = f"{self._state.topic_name((move.topic_id, move.partition))}-{move.partition}"
        running = Move.of(partition)
        target = ", ".join(map(str, running.target))
        if running.is_running:
            return f"{place} is moving to {target}, which is not part of the plan"
        if sorted(partition.replicas) == sorted(self._plan.start(move)):
            return f"the move of {place} was cancelled by other means"
        return f"{place} was moved to {target} by other means"


def changed(state: ClusterState, plan: PlanImage) -> Iterator[MetadataRecord]:
    """The records of a plan in another state; its throttle goes with its end."""
    yield header_of(plan)
    if not plan.is_open:
        yield from throttle_off(state.image, plan)


WORDS = {
    State.RUNNING: "runs",
    State.PAUSED: "is paused",
    State.STOPPED: "stopped",
    State.DONE: "is done",
    State.CANCELLED: "was cancelled",
}


def plan_reason(plan: PlanImage) -> Reason:
    """What is said of a plan that changes its state."""
    back = " (rolling back)" if plan.backwards else ""
    return Reason(
        Code.PLAN_CHANGED,
        f"the plan to {plan.goal}{back} {WORDS[plan.state]}: {plan.sentence}",
        {"plan_id": plan.plan_id, "state": plan.state.name},
    )
