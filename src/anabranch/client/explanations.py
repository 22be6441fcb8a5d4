"""Everything that is known about why one partition is where it is.

What: the partition's state, what placement says of it, moves and plans that concern it, and what
the controller decided about it lately. Rule kept: what is asked of a running cluster is what plans
see (`plans.py`), so an explanation and a plan never contradict each other.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.client.carried_plans import is_open, newest, state_of
from anabranch.client.cluster import Cluster
from anabranch.client.overview import reasons_of
from anabranch.client.partitions import Partition, leaderless
from anabranch.client.plans import View, look
from anabranch.client.reasons import TimedReason
from anabranch.client.reassignments import waits_for
from anabranch.core.controller.partitions.record_holders import awaited
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.placement.explanation import Explanation, explain
from anabranch.core.placement.layout import Row
from anabranch.core.sentences import named, number_of
from anabranch.core.types import TopicPartition
from anabranch.core.wire.own_fields import PlanTold

MOST_SAID = 10


class Explained(NamedTuple):
    """One partition; `moves` says what moves it, would move it, or why nothing does. While nobody
    leads it, `no_leader` says why, and `waits_for` has those with its records that are down."""

    place: TopicPartition
    state: Partition
    no_leader: str | None
    waits_for: Row
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    explanation: Explanation
    moves: list[str]
    said: list[TimedReason]


async def explained(cluster: Cluster, place: TopicPartition) -> Explained:
    """Ask for all of it. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION."""
    view = await look(cluster)
    if place not in view.rows:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {place}.")
    state = next(
        each
        for topic in view.topics
        if topic.name == place.topic
        for each in topic.partitions
        if each.partition == place.partition
    )
    holders = leaderless(view.topics).get(place, ())
    down = tuple(each for each in holders if each not in _active(view))
    explanation = explain(view.layout, place)
    moving = view.moving.get(place)
    said = (await reasons_of(cluster)).about(str(place), MOST_SAID)
    return Explained(
        place,
        state,
        _no_leader(holders, down),
        down,
        moving.coming if moving else (),
        moving.removing if moving else (),
        explanation,
        _moves(view, place, holders, await newest(cluster), explanation),
        said,
    )


def _of_diskless(view: View, place: TopicPartition) -> list[str]:
    """What the controller does to a diskless partition, or waits for, as it says itself."""
    return [
        sentence
        for topic in view.topics
        if topic.name == place.topic and topic.diskless is not None
        for each in topic.diskless.partitions
        if each.partition_index == place.partition
        for sentence in each.sentences
    ]


def _active(view: View) -> set[int]:
    return {site.broker_id for site in view.sites if site.active}


def _no_leader(holders: Row, down: Row) -> str | None:
    """Why it has no leader, by who has the records; nothing where it has one, or no broker has
    them."""
    if not holders:
        return None
    if set(holders) > set(down):
        up = named([each for each in holders if each not in down], "broker")
        return f"up, with its records, but not leading: {up}; see the logs there"
    which = ", any one of them" if len(down) > 1 else ""
    return f"it waits for {awaited(down)}{which}: no other broker has its records"


def _moves(
    view: View,
    place: TopicPartition,
    holders: Row,
    plan: PlanTold | None,
    explanation: Explanation,
) -> list[str]:
    found = _of_diskless(view, place)
    moving = view.moving.get(place)
    if moving is not None:
        target = ", ".join(map(str, moving.target))
        waits = ", ".join(map(str, moving.coming)) or "those that stay"
        found.append(f"it moves to {target}: waiting for {waits} to be in sync")
        if down := sorted(waits_for(moving, _active(view), holders)):
            found.append(
                f"down, and waited for: {named(down, 'broker')}; start what is down, or cancel "
                "the move with `anabranch partitions "
                "reassign --cancel --file FILE`"
            )
    if place in view.short:
        found.append(
            f"missing: {number_of(view.short[place], 'replica')}, for the next broker that joins"
        )
    for each in plan.moves if plan is not None else ():
        if (each.topic, each.partition) == (place.topic, place.partition):
            assert plan is not None
            found.append(f"its move of the plan to {plan.goal}: {each.sentence}")
    found = found or list(explanation.moves)
    if plan is not None and is_open(plan):
        found.append(f"a plan is open, to {plan.goal}: {state_of(plan)}, {plan.sentence}")
    return found
