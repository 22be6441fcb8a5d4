"""Requests about a plan of moves: hand one over, pause it, let it go on, cancel it, roll it back.

What: one function a verb. Handing over checks the whole plan against the cluster as it is, and
begins nothing unless every move still starts where the plan found it: what was reviewed is what
runs. Cancelling takes back what is under way and keeps what is done; rolling back moves everything
to where it was. Rules kept: one plan is open at a time, whoever asks; every verb may be sent again
without harm, since its sender may not have heard the answer.

Source: decision 0027. Not here: carrying out (`plan_progress.py`), how a request carries a plan
(`core/wire/own_fields.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce

from msgspec.structs import replace

from anabranch.core.controller.brokers.cordons import is_cordoned
from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.moves.plan_cordons import cordon_off, cordon_on, to_cordon
from anabranch.core.controller.moves.plan_progress import changed, plan_reason
from anabranch.core.controller.moves.plan_states import MoveState, away, found, standing
from anabranch.core.controller.moves.plan_throttle import throttle_on, throttled_already
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.controller.moves.requests import move as moved_to
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.topics.assignments import check_manual
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import check_own_record
from anabranch.core.metadata.plan_state import (
    MoveImage,
    PlanImage,
    State,
    Status,
    header_of,
    moves_of,
    plan_after,
)
from anabranch.core.placement.move_plans import MoveCause
from anabranch.core.placement.plan_file import MOST_CHARACTERS
from anabranch.core.sentences import number_of
from anabranch.core.wire.metadata_records import (
    MetadataRecord,
    PlanMovesRecord,
    PlanProgressRecord,
    PlanRecord,
)
from anabranch.core.wire.own_fields import AskedMove, PlanAsked

MOST_MOVES = 20_000
"""Moves of one plan: some 4 MB in the metadata log and in every snapshot."""
NAMED_FAULTS = 5
ABOUT_PLANS = (PlanRecord, PlanMovesRecord, PlanProgressRecord)


def decide_plan(
    consequences: Consequences, cluster_id: str, asked: PlanAsked
) -> Result[PlanImage | None]:
    """Do what is asked; the response is the plan as it is then. Raises ClientFault."""
    plan = consequences.state.image.plan
    if asked.verb == "carry":
        result = _hand_over(consequences, cluster_id, asked)
    elif asked.verb not in VERBS:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST, f"There is no verb {asked.verb!r} for plans here."
        )
    elif plan is None:
        raise ClientFault(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No plan has been applied to this cluster."
        )
    else:
        result = VERBS[asked.verb](consequences, plan)
    about = (each for each in result.records if isinstance(each, ABOUT_PLANS))
    return Result(result.records, reduce(plan_after, about, plan), result.reasons)


def _hand_over(consequences: Consequences, cluster_id: str, asked: PlanAsked) -> Result[None]:
    state = consequences.state
    image, before = state.image, state.image.plan
    check_own_record(image, PlanRecord)
    _check_asked(cluster_id, asked)
    if before is not None and (before.goal, before.made_at_ms) == (asked.goal, asked.made_at_ms):
        if before.is_open or _is_carried_out(state, before):
            return Result((), None)
    if before is not None and before.is_open:
        raise ClientFault(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"Another plan is open, to {before.goal} ({before.state.name.lower()}): wait for its "
            "end, or cancel it.",
        )
    moves = _checked(consequences, asked.moves)
    plan = PlanImage(
        plan_id=1 if before is None else before.plan_id + 1,
        goal=asked.goal,
        made_at_ms=asked.made_at_ms,
        state=State.RUNNING,
        backwards=False,
        most_at_once=asked.most_at_once,
        throttle=asked.throttle if asked.throttle > 0 else -1,
        sentence=f"{number_of(len(asked.moves), 'move')}, at most {asked.most_at_once} at once",
        moves=moves,
        cordons=to_cordon(image, moves),
    )
    _check_throttle(consequences, plan)
    records = (
        *cordon_on(plan.cordons), header_of(plan), *moves_of(plan), *throttle_on(image, plan)
    )  # fmt: skip
    return Result(records, None, (plan_reason(plan),))


def _is_carried_out(state: ClusterState, plan: PlanImage) -> bool:
    """Whether a plan is done, and its partitions are where it moved them: whoever sends it again
    has lost the answer."""
    settled = (MoveState.AT_AIM, MoveState.GONE)
    return (
        plan.state is State.DONE
        and not plan.backwards
        and all(
            standing(found(state, move), plan, move, plan.status(index)) in settled
            for index, move in enumerate(plan.moves)
        )
    )


def _check_asked(cluster_id: str, asked: PlanAsked) -> None:
    """Raise unless it is a plan for this cluster, and of bounded size."""
    if asked.cluster_id != cluster_id:
        raise ClientFault(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The plan was made for cluster {asked.cluster_id}, and this is cluster {cluster_id}: "
            "make a new plan.",
        )
    if not 1 <= len(asked.moves) <= MOST_MOVES or asked.most_at_once < 1:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"A plan has 1 to {MOST_MOVES} moves, with at least one in progress at a time; this "
            f"has {len(asked.moves)}, and {asked.most_at_once} at a time: apply it in parts.",
        )
    texts = (text for each in asked.moves for text in (each.why, each.because))
    if any(len(text) > MOST_CHARACTERS for text in (asked.goal, *texts)):
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"A goal, and the reason for a move, have at most {MOST_CHARACTERS} characters.",
        )


def _checked(consequences: Consequences, asked: list[AskedMove]) -> tuple[MoveImage, ...]:
    """The moves; raises INVALID_REPLICA_ASSIGNMENT that names what does not fit any more."""
    faults: list[str] = []
    moves: dict[tuple[bytes, int], MoveImage] = {}
    for each in asked:
        place = f"{each.topic}-{each.partition}"
        topic = consequences.state.image.topic(each.topic)
        if topic is None or each.partition not in topic.partitions:
            faults.append(f"{place} does not exist")
            continue
        if (topic.topic_id, each.partition) in moves:
            faults.append(f"{place} is named twice")
            continue
        move = MoveImage(
            topic.topic_id, each.partition, tuple(each.before), tuple(each.after), each.why,
            each.because,
        )  # fmt: skip
        moves[topic.topic_id, each.partition] = move
        fault = _fault(consequences, place, move)
        if fault:
            faults.append(fault)
    if faults:
        named = "; ".join(faults[:NAMED_FAULTS])
        more = f"; and {len(faults) - NAMED_FAULTS} more" if len(faults) > NAMED_FAULTS else ""
        raise ClientFault(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The cluster has changed since the plan was made: {named}{more}. Plan again.",
        )
    return tuple(moves.values())


def _fault(consequences: Consequences, place: str, move: MoveImage) -> str | None:
    """Why a move cannot begin as it was planned."""
    state = consequences.state
    partition = found(state, move)
    assert partition is not None
    if Move.of(partition).is_running:
        return f"{place} is being moved"
    if partition.replicas != move.before:
        was, now = (", ".join(map(str, row)) for row in (move.before, partition.replicas))
        return f"{place} is on {now}, not on {was}"
    if partition.missing and move.why != MoveCause.FACTOR_CHANGED:
        return f"{place} has {number_of(partition.missing, 'missing replica')}"
    try:
        check_manual(state.image, move.after, None)
    except ClientFault as fault:
        return f"{place}: {fault.message.rstrip('.')}"
    comes = tuple(each for each in move.after if each not in move.before)
    down = away(state, comes)
    if down:
        return f"broker {down[0]}, the target of {place}, is down"
    closed = [each for each in comes if is_cordoned(state.image, each)]
    if closed:
        return f"broker {closed[0]}, the target of {place}, is cordoned"
    return None


def _check_throttle(consequences: Consequences, plan: PlanImage) -> None:
    image = consequences.state.image
    already = throttled_already(image, plan) if plan.throttle > 0 else []
    if already:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"A replication throttle is set for {', '.join(already[:NAMED_FAULTS])} already: "
            "remove it, or apply a plan without a throttle.",
        )


def _pause(consequences: Consequences, plan: PlanImage) -> Result[None]:
    if plan.state is State.PAUSED:
        return Result((), None)
    if not plan.is_open:
        raise _over(plan)
    return _now(consequences, plan, State.PAUSED, "moves in progress continue, no others start")


def _resume(consequences: Consequences, plan: PlanImage) -> Result[None]:
    """Go on; what somebody else took back begins again."""
    if plan.state is State.RUNNING:
        return Result((), None)
    if not plan.is_open:
        raise _over(plan)
    return _go_on(consequences, plan, "it goes on")


def _go_on(consequences: Consequences, plan: PlanImage, sentence: str) -> Result[None]:
    again: list[MetadataRecord] = [*_throttle_again(consequences, plan)]
    for move in plan.under_way():
        now = standing(found(consequences.state, move), plan, move, Status.UNDER_WAY)
        if now is MoveState.AT_START:
            name = consequences.state.topic_name((move.topic_id, move.partition))
            again += moved_to(consequences, name, move.partition, plan.aim(move)).records
    return _now(consequences, plan, State.RUNNING, sentence, again)


def _cancel(consequences: Consequences, plan: PlanImage) -> Result[None]:
    if plan.state is State.CANCELLED:
        return Result((), None)
    if not plan.is_open:
        raise _over(plan)
    back = _Back(consequences, plan)
    for index in back.under_way():
        back.take(index, plan.untouched)
    stays = ""
    if back.kept:
        stays = f"; {back.kept} could not be cancelled without losing records, and continue"
    sentence = f"cancelled {number_of(back.count, 'move')}, completed moves stay{stays}"
    opened = cordon_off(consequences.state.image, plan.cordons)
    given_up = replace(plan, state=State.CANCELLED, sentence=sentence, cordons=())
    return back.result(given_up, tuple(opened))


def _roll_back(consequences: Consequences, plan: PlanImage) -> Result[None]:
    if plan.backwards and plan.state in (State.RUNNING, State.DONE):
        return Result((), None)
    if plan.backwards:
        return _go_on(consequences, plan, "it continues rolling back")
    turned = replace(plan, backwards=True, state=State.RUNNING, cordons=())
    more = _throttle_again(consequences, plan)
    more += tuple(cordon_off(consequences.state.image, plan.cordons))
    back = _Back(consequences, plan)
    for index in back.under_way():
        back.take(index, Status.WAITING, insist=True)
    sentence = "all partitions move back"
    return back.result(replace(turned, sentence=sentence), more)


SETTLED: Mapping[MoveState, Callable[[PlanImage], Status]] = {
    MoveState.GONE: lambda _plan: Status.GONE,
    MoveState.AT_AIM: lambda plan: plan.aimed,
    MoveState.AT_START: lambda plan: plan.untouched,
}
"""What a move that is under way no more is noted as; where somebody else moved the partition, it is
left as it is."""


def _throttle_again(consequences: Consequences, plan: PlanImage) -> tuple[MetadataRecord, ...]:
    """The throttle of a plan that was over, and goes on."""
    if plan.is_open:
        return ()
    _check_throttle(consequences, plan)
    return tuple(throttle_on(consequences.state.image, plan))


class _Back:
    """Takes back what is under way."""

    def __init__(self, consequences: Consequences, plan: PlanImage) -> None:
        self._consequences = consequences
        self._plan = plan
        self._records: list[MetadataRecord] = []
        self._reasons: list[Reason] = []
        self._noted: dict[Status, list[int]] = {}
        self.count = 0
        self.kept = 0
        """Moves that cannot be taken back without losing records."""

    def under_way(self) -> Iterator[int]:
        """The moves that are; of the others, how far they came is noted."""
        plan = self._plan
        for index, move in enumerate(plan.moves):
            if plan.status(index) is not Status.UNDER_WAY:
                continue
            partition = found(self._consequences.state, move)
            now = standing(partition, plan, move, Status.UNDER_WAY)
            if now is MoveState.GOING:
                yield index
            elif now in SETTLED:
                self._note(index, SETTLED[now](plan))

    def take(self, index: int, status: Status, *, insist: bool = False) -> None:
        """Take one move back; where that would lose records, with `insist` move back in order."""
        move = self._plan.moves[index]
        name = self._consequences.state.topic_name((move.topic_id, move.partition))
        try:
            moved = moved_to(self._consequences, name, move.partition, None)
        except ClientFault:
            self.kept += 1
            if not insist:
                return
            moved = moved_to(self._consequences, name, move.partition, move.before)
            status = Status.UNDER_WAY
        self.count += 1
        self._note(index, status)
        self._records += moved.records
        self._reasons += moved.reasons

    def result(self, plan: PlanImage, more: tuple[MetadataRecord, ...] = ()) -> Result[None]:
        """All of it, and the plan's new state."""
        records = [*self._records, *_progress(plan, self._noted), *more]
        records += changed(self._consequences.state, plan)
        return Result(tuple(records), None, (plan_reason(plan), *self._reasons))

    def _note(self, index: int, status: Status) -> None:
        self._noted.setdefault(status, []).append(index)


def _now(
    consequences: Consequences,
    plan: PlanImage,
    state: State,
    sentence: str,
    more: Iterable[MetadataRecord] = (),
) -> Result[None]:
    turned = replace(plan, state=state, sentence=sentence)
    records = (*more, *changed(consequences.state, turned))
    return Result(records, None, (plan_reason(turned),))


def _progress(plan: PlanImage, noted: Mapping[Status, list[int]]) -> Iterator[MetadataRecord]:
    for status, indexes in sorted(noted.items()):
        yield PlanProgressRecord(plan_id=plan.plan_id, status=status, moves=indexes)


def _over(plan: PlanImage) -> ClientFault:
    return ClientFault(
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        f"No plan is open: the last one, to {plan.goal}, is {plan.state.name.lower()}.",
    )


VERBS: Mapping[str, Callable[[Consequences, PlanImage], Result[None]]] = {
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "roll-back": _roll_back,
}
"""What can be asked of a plan that is there."""
