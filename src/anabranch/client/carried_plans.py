"""Plans that the controller carries out: hand one over, ask for its progress, steer it.

What: the tagged fields of AlterPartitionReassignments and ListPartitionReassignments. Rule kept: an
answer without such a field is of a node that does not know plans, and nothing was done; every
request is sent again while that can help, since the controller takes it for the same one.

Source: `core/wire/own_fields.py`. Not here: making plans (`plans.py`).
"""

from __future__ import annotations

from anabranch.client.cluster import Cluster, check
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.plan_state import OPEN, State
from anabranch.core.placement.plan_file import PlanFile
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from anabranch.core.wire.own_fields import (
    ASKED,
    OWN_TAG,
    AskedMove,
    PlanAsked,
    PlanTold,
    tagged,
    untagged,
)

TIMEOUT_MS = 30_000
BACK = {State.RUNNING: "rolling back", State.DONE: "rolled back"}


async def hand_over(
    cluster: Cluster, plan: PlanFile, *, most_at_once: int, throttle: int | None = None
) -> PlanTold:
    """Have the controller carry out exactly this plan, at most so many moves and (throttle) bytes a
    second at once. Raises ApiError, and nothing moves, when the cluster is not as it was."""
    moves = [
        AskedMove(
            topic=each.place.topic,
            partition=each.place.partition,
            before=[*each.before],
            after=[*each.after],
            why=str(each.why),
            because=each.sentence,
        )
        for each in plan.moves
    ]
    asked = PlanAsked(
        verb="carry",
        cluster_id=plan.cluster_id,
        goal=plan.goal,
        made_at_ms=plan.made_at_ms,
        most_at_once=most_at_once,
        throttle=-1 if throttle is None else throttle,
        moves=moves,
    )
    return await _ask(cluster, asked)


async def steer(cluster: Cluster, verb: str) -> PlanTold:
    """Have the newest plan paused, resumed, cancelled or rolled back ("pause", "resume", "cancel",
    "roll-back"). Raises ApiError NO_REASSIGNMENT_IN_PROGRESS when there is nothing to steer."""
    return await _ask(cluster, PlanAsked(verb=verb))


async def fares(cluster: Cluster) -> PlanTold | None:
    """How the newest plan fares; None when there never was one."""
    request = ListPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[], unknown_tagged_fields=ASKED
    )

    async def attempt() -> PlanTold:
        response: ListPartitionReassignmentsResponse = await cluster.send(request)
        check(response.error_code, response.error_message)
        return _told(response.unknown_tagged_fields)

    told = await cluster.retrying(attempt)
    return told if told.plan_id else None


async def newest(cluster: Cluster) -> PlanTold | None:
    """As `fares`; None also where nobody knows plans."""
    try:
        return await fares(cluster)
    except ApiError as fault:
        if fault.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise


def state_of(plan: PlanTold) -> str:
    """The state of a plan in a word or two."""
    state = State(plan.state)
    return BACK.get(state, state.name.lower()) if plan.backwards else state.name.lower()


def is_open(plan: PlanTold) -> bool:
    """Whether it keeps other plans out."""
    return plan.state in OPEN


async def _ask(cluster: Cluster, asked: PlanAsked) -> PlanTold:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[], unknown_tagged_fields=tagged(asked)
    )

    async def attempt() -> PlanTold:
        response: AlterPartitionReassignmentsResponse = await cluster.send(request)
        check(response.error_code, response.error_message)
        return _told(response.unknown_tagged_fields)

    return await cluster.retrying(attempt)


def _told(fields: dict[int, bytes] | None) -> PlanTold:
    if OWN_TAG not in (fields or {}):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The active controller does not support plans: upgrade it.",
        )
    return untagged(PlanTold, fields)
