"""Moves of replicas as a client asks for them: begin, take back, list, compare with a file.

What: AlterPartitionReassignments and ListPartitionReassignments, and the throttle that goes with a
move: the same settings that Kafka's tool sets, so that either tool can end what the other began.
Rule kept: each partition has its own outcome. Source: KIP-455, KIP-73. Not here: which replicas
should move (`core/placement`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, TypeAlias

from anabranch.client.admin import (
    ConfigOperation,
    ResourceKind,
    alter_configs,
    describe_cluster,
    describe_configs,
)
from anabranch.client.carried_plans import is_open, newest
from anabranch.client.cluster import Cluster, check
from anabranch.core.controller.moves.plan_throttle import (
    EVERY_REPLICA,
    RATES,
    REPLICAS,
    replicas_text,
)
from anabranch.core.controller.moves.reassignment import Move, Row
from anabranch.core.errors import ERRORS, ErrorCode
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS

TIMEOUT_MS = 30_000
_Wanted: TypeAlias = tuple[TopicPartition, Row | None]


class Asked(NamedTuple):
    """What came of asking for one partition's move."""

    place: TopicPartition
    code: ErrorCode
    sentence: str


class Progress(StrEnum):
    """How far a partition is from what a file asks for."""

    DONE = "done"
    MOVING = "moving"
    ELSEWHERE = "elsewhere"
    """Nothing moves it, and its replicas are others."""
    UNKNOWN = "unknown"
    """There is no such partition."""


async def reassign(
    cluster: Cluster,
    moves: Mapping[TopicPartition, Row | None],
    *,
    may_change_factor: bool = True,
) -> list[Asked]:
    """Give partitions these replicas, or (None) take their moves back; in order of partitions.

    Raises ApiError when a request as a whole was refused: what was asked for before it goes on.
    """
    outcomes: list[Asked] = []
    for part in _requests(moves):
        outcomes += await _ask(cluster, part, may_change_factor=may_change_factor)
    return sorted(outcomes)


def _requests(moves: Mapping[TopicPartition, Row | None]) -> Iterator[list[_Wanted]]:
    """The moves in order, as many at a time as a node reads in one request."""
    part: list[_Wanted] = []
    elements = 0
    for place, replicas in sorted(moves.items()):
        needed = 2 + len(replicas or ())  # the partition and, at worst, a topic of its own
        if part and elements + needed > MOST_REQUEST_ELEMENTS:
            yield part
            part, elements = [], 0
        part.append((place, replicas))
        elements += needed
    if part:
        yield part


async def _ask(
    cluster: Cluster, moves: Sequence[_Wanted], *, may_change_factor: bool
) -> list[Asked]:
    topics: dict[str, ReassignableTopic] = {}
    for place, replicas in moves:
        topic = topics.setdefault(place.topic, ReassignableTopic(name=place.topic))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=place.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        allow_replication_factor_change=may_change_factor,
        topics=list(topics.values()),
    )
    response: AlterPartitionReassignmentsResponse = await cluster.send(request)
    check(response.error_code, response.error_message)
    outcomes = []
    for answered in response.responses:
        for each in answered.partitions:
            code = ErrorCode(each.error_code)
            sentence = each.error_message or ("" if not code else ERRORS[code].sentence)
            place = TopicPartition(answered.name, each.partition_index)
            outcomes.append(Asked(place, code, sentence))
    return outcomes


async def under_way(cluster: Cluster) -> dict[TopicPartition, Move]:
    """Every move that is not done, by partition. Tried again while that can help."""

    async def attempt() -> ListPartitionReassignmentsResponse:
        response: ListPartitionReassignmentsResponse = await cluster.send(
            ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
        )
        check(response.error_code, response.error_message)
        return response

    response = await cluster.retrying(attempt)
    return {
        TopicPartition(topic.name, each.partition_index): Move(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def waits_for(move: Move, up: Container[int], holders: Row = ()) -> Row:
    """Those without whom a move cannot end, and who are not `up`: who must be in sync, and while
    nobody leads, the `holders` of the records."""
    needed = dict.fromkeys((*move.needed, *holders))
    return tuple(each for each in needed if each not in up)


def held(row: Sequence[int]) -> Row:
    """Those of a list that brokers have: the ids of missing replicas are negative."""
    return tuple(each for each in row if each >= 0)


async def assignment(cluster: Cluster, topics: Sequence[str]) -> dict[TopicPartition, Row]:
    """The replicas of every partition of these topics, also missing ones; those of unknown topics
    are left out."""
    found = (await cluster.metadata(list(topics))).topics
    return {
        TopicPartition(topic.name or "", each.partition_index): tuple(each.replica_nodes)
        for topic in found
        if not topic.error_code
        for each in topic.partitions
    }


async def before(cluster: Cluster, places: Iterable[TopicPartition]) -> dict[TopicPartition, Row]:
    """The replicas to which partitions that are there can be moved back: those that brokers have,
    or had before the move that is under way."""
    moving = await under_way(cluster)
    wanted = set(places)
    has = await assignment(cluster, sorted({place.topic for place in wanted}))
    return {
        place: moving[place].original if place in moving else held(row)
        for place, row in has.items()
        if place in wanted
    }


async def progress(
    cluster: Cluster, moves: Mapping[TopicPartition, Row]
) -> dict[TopicPartition, Progress]:
    """How far each partition is from the replicas that `moves` gives it."""
    moving = await under_way(cluster)
    has = await assignment(cluster, sorted({place.topic for place in moves}))
    found: dict[TopicPartition, Progress] = {}
    for place, wanted in sorted(moves.items()):
        if place not in has:
            found[place] = Progress.UNKNOWN
        elif place in moving:
            aims = moving[place].target == wanted
            found[place] = Progress.MOVING if aims else Progress.ELSEWHERE
        else:
            found[place] = Progress.DONE if has[place] == wanted else Progress.ELSEWHERE
    return found


async def throttle(
    cluster: Cluster,
    moves: Mapping[TopicPartition, Row],
    has: Mapping[TopicPartition, Row],
    bytes_a_second: int,
) -> None:
    """Let replicas of these moves, from `has`, copy at most so fast, at each broker that gives or
    takes. What is listed already of their topics stays: moves that began before are slow too."""
    named = {each for row in (*moves.values(), *has.values()) for each in row}
    rates = [(ConfigOperation.SET, name, str(bytes_a_second)) for name in RATES]
    for broker in (await describe_cluster(cluster)).brokers:
        if broker.broker_id in named:
            await alter_configs(cluster, ResourceKind.BROKER, str(broker.broker_id), rates)
    for topic, of_topic in groupby(sorted(moves), key=lambda place: place.topic):
        leaders, followers = [], []
        for place in of_topic:
            row = has.get(place, ())
            leaders += [f"{place.partition}:{each}" for each in row]
            comes = (each for each in moves[place] if each not in row)
            followers += [f"{place.partition}:{each}" for each in comes]
        listed = await _listed(cluster, topic)
        settings = [
            (ConfigOperation.SET, name, _with(listed.get(name, ""), each))
            for name, each in zip(REPLICAS, (leaders, followers), strict=True)
            if each
        ]
        await alter_configs(cluster, ResourceKind.TOPIC, topic, settings)


async def _listed(cluster: Cluster, topic: str) -> dict[str, str]:
    """What a topic's settings have been told to throttle."""
    settings = await describe_configs(cluster, ResourceKind.TOPIC, topic)
    return {each.name: each.value or "" for each in settings if each.name in REPLICAS}


def _with(listed: str, replicas: Sequence[str]) -> str:
    """A throttle's list of replicas with these, too."""
    if listed == EVERY_REPLICA:
        return listed
    return replicas_text(list(dict.fromkeys([*filter(None, listed.split(",")), *replicas])))


async def unthrottle(cluster: Cluster, topics: Iterable[str]) -> None:
    """Take the throttle off every broker, also off those that are down, and these topics. It stays
    while replicas move, whose throttle it may be, as does a plan's: the controller ends that."""
    plan = await newest(cluster)
    if (plan is not None and is_open(plan) and plan.throttle > 0) or await under_way(cluster):
        return
    rates = [(ConfigOperation.DELETE, name, None) for name in RATES]
    for broker in (await describe_cluster(cluster)).brokers:
        await alter_configs(cluster, ResourceKind.BROKER, str(broker.broker_id), rates)
    for topic in sorted(set(topics)):
        lists = [(ConfigOperation.DELETE, name, None) for name in REPLICAS]
        await alter_configs(cluster, ResourceKind.TOPIC, topic, lists)
