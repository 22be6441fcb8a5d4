"""How far a move of a plan is, read off its partition, and how the whole plan fares.

What: `standing` compares a partition's replicas with what the plan found and wants; `told` is what
people and programs are answered. Rule kept: the partition decides, not what was written down of it,
so whatever somebody else did in the meantime is seen. Not here: what follows (`plan_progress.py`).
"""

from __future__ import annotations

from enum import Enum

from anabranch.core.controller.brokers.membership import is_active
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.moves.reassignment import Move, begun
from anabranch.core.controller.partitions.record_holders import awaited, holders
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.metadata.plan_state import MoveImage, PlanImage, Row, Status, header_of
from anabranch.core.wire.own_fields import PlanTold, ToldMove
from anabranch.core.wire.schema import same_fields

MOST_TOLD = 100
"""Moves that an answer names: those under way, and those that wait for somebody."""


class MoveState(Enum):
    """Where a partition is, as its plan sees it."""

    AT_START = "at the start"
    GOING = "going"
    AT_AIM = "at the aim"
    ELSEWHERE = "elsewhere"
    """Neither: somebody else moved it."""
    GONE = "gone"


def found(state: ClusterState, move: MoveImage) -> PartitionImage | None:
    """The partition of a move, None when it was deleted."""
    topic = state.image.topic_by_id(move.topic_id)
    return None if topic is None else topic.partitions.get(move.partition)


def standing(
    partition: PartitionImage | None, plan: PlanImage, move: MoveImage, status: Status
) -> MoveState:
    """Where the partition of a move is. A move that an earlier version began, and that was taken
    back with Kafka's tools, has the replicas that it had, in another order."""
    if partition is None:
        return MoveState.GONE
    running = Move.of(partition)
    if running.is_running:
        return MoveState.GOING if running.target == plan.aim(move) else MoveState.ELSEWHERE
    if partition.replicas == plan.aim(move):
        return MoveState.AT_AIM
    start = plan.start(move)
    if partition.replicas == start:
        return MoveState.AT_START
    is_back = status is Status.UNDER_WAY and sorted(partition.replicas) == sorted(start)
    return MoveState.AT_START if is_back else MoveState.ELSEWHERE


def away(state: ClusterState, row: Row) -> list[int]:
    """Brokers of a list that are down."""
    return [each for each in row if not is_active(state.image, each)]


def blocking_brokers(
    state: ClusterState, plan: PlanImage, move: MoveImage, partition: PartitionImage
) -> list[int]:
    """Brokers that are down, without whom a move cannot end: who must be in sync, and while nobody
    leads, whoever has the records; nobody has them of a diskless partition."""
    aim = plan.aim(move)
    running = Move.of(partition)
    goes = running.is_running and running.target == aim
    lists = running if goes else begun(partition.replicas, aim)
    needed = lists.needed
    copies = lists.is_running and not is_diskless(
        state.image, state.topic_name((move.topic_id, move.partition))
    )
    if copies and partition.leader < 0:
        needed += holders(
            partition.isr, partition.elr, partition.last_known_elr, partition.replicas
        )
    return away(state, tuple(dict.fromkeys(needed)))


def told(state: ClusterState, plan: PlanImage | None) -> PlanTold:
    """How a plan fares now."""
    if plan is None:
        return PlanTold()
    answer = same_fields(PlanTold, header_of(plan))
    counts = dict.fromkeys(Status, 0)
    for index, move in enumerate(plan.moves):
        status = plan.status(index)
        if status is Status.UNDER_WAY:
            if standing(found(state, move), plan, move, status) is MoveState.AT_AIM:
                status = plan.aimed
        counts[status] += 1
        is_open = status is Status.UNDER_WAY or (plan.is_open and status is plan.untouched)
        if is_open and len(answer.moves) < MOST_TOLD:
            _tell(answer, state, plan, move, status)
    answer.waiting, answer.under_way, answer.done, answer.gone = (counts[each] for each in Status)
    return answer


def _tell(
    answer: PlanTold, state: ClusterState, plan: PlanImage, move: MoveImage, status: Status
) -> None:
    """Name a move that is under way, or that waits for brokers."""
    partition = found(state, move)
    if partition is None:
        return
    down = blocking_brokers(state, plan, move, partition)
    if status is not Status.UNDER_WAY and not down:
        return
    sentence = f"waits for {awaited(down)}" if down else "copies"
    answer.moves.append(
        ToldMove(
            topic=state.topic_name((move.topic_id, move.partition)),
            partition=move.partition,
            before=list(plan.start(move)),
            after=list(plan.aim(move)),
            sentence=sentence,
        )
    )
