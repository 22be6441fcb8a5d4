"""Partitions as an operator sees them: who leads, who is in sync, and what is wrong with them.

What: descriptions of topics with their partitions, the four ill states that Kafka's
`kafka-topics.sh` knows, and two of ours: replicas that no broker has yet, and lists in fewer racks
than they could be in (`core/placement/racks.py`; of a partition that is moving, the list that it
will have, where a controller is there to say so; of a topic with `ignore.rack.assignment=true` it
is no violation, and counted apart). Rules kept, as there: under-replicated is an ISR
smaller than the replicas; under and at the minimum compare the ISR with `min.insync.replicas` as it
is configured, also where there are fewer replicas than that, and a partition without a leader is
under it; unavailable has no leader that serves. Observers are replicas in none of them: what
Metadata names beyond DescribeTopicPartitions are the observers.
Source: Kafka 4.1's TopicCommand, KIP-351, KIP-966. Not here: tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from anabranch.client.admin import ResourceKind, describe_cluster
from anabranch.client.cluster import Cluster, check, check_there
from anabranch.client.connection import ConnectionLost
from anabranch.client.reassignments import under_way
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.controller.partitions.record_holders import holders
from anabranch.core.errors import ERRORS, ApiError, ErrorCode
from anabranch.core.placement.constraints import SETTING as CONSTRAINTS
from anabranch.core.placement.constraints import (
    Constraints,
    ConstraintsFault,
    read_constraints,
)
from anabranch.core.placement.racks import spread_of
from anabranch.core.settings.setting import is_true
from anabranch.core.types import NO_LEADER, TopicId, TopicPartition
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from anabranch.core.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from anabranch.core.wire.own_fields import ASKED, DisklessTopic, DisklessTopics, untagged

MINIMUM = "min.insync.replicas"
IGNORES_RACKS = "ignore.rack.assignment"
MOVES_SECONDS = 3
"""Partitions are shown without moves when no controller is there to ask."""
CONFIGS_A_REQUEST = 500
"""Topics whose settings are asked for at once, so that no answer grows without a limit."""


class Illness(Enum):
    """What may be wrong with a partition; the values are the names in options and JSON."""

    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"
    UNAVAILABLE = "unavailable"
    MISSING_REPLICAS = "missing-replicas"
    RACK_VIOLATION = "rack-violation"


class Partition(NamedTuple):
    """One partition; `leader` is -1 while nobody leads it or its leader is not there.

    `replicas` are as the node tells them: negative ids stand for replicas that no broker has yet.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    observers: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    violates_racks: bool = False
    """Whether its replicas are in fewer racks than they could be in, and its topic does not accept
    that."""
    shares_racks: bool = False
    """Whether they are, and its topic does."""
    move: Move | None = None
    """Of its replicas, when one is under way and a controller was there to say so."""

    @property
    def placed(self) -> tuple[int, ...]:
        """The replicas that a broker has."""
        return tuple(each for each in self.replicas if each >= 0)

    @property
    def missing(self) -> int:
        """Replicas that no broker has yet."""
        return len(self.replicas) - len(self.placed)

    def illnesses(self, minimum: int) -> frozenset[Illness]:
        """Everything that is wrong, `minimum` being the topic's min.insync.replicas."""
        found = set()
        in_sync = len(self.isr)
        if in_sync < len(self.replicas):
            found.add(Illness.UNDER_REPLICATED)
        if self.leader < 0:
            found.add(Illness.UNAVAILABLE)
        if self.leader < 0 or in_sync < minimum:
            found.add(Illness.UNDER_MIN_ISR)
        if in_sync == minimum:
            found.add(Illness.AT_MIN_ISR)
        if self.missing:
            found.add(Illness.MISSING_REPLICAS)
        if self.violates_racks:
            found.add(Illness.RACK_VIOLATION)
        return frozenset(found)


class Topic(NamedTuple):
    """One topic with its partitions in order."""

    name: str
    topic_id: TopicId
    is_internal: bool
    minimum: int
    partitions: tuple[Partition, ...]
    constraints: Constraints | None = None
    """Its placement constraints, as far as they can be read here."""
    diskless: DisklessTopic | None = None
    """How it is placed, if it is diskless: `minimum` is 0 then, since all are in sync."""
    accepts_shared_racks: bool = False
    """Whether `ignore.rack.assignment` places its replicas without regard to racks."""

    @property
    def shared_racks(self) -> int:
        """Partitions in fewer racks than they could be in, as the topic accepts."""
        return sum(each.shares_racks for each in self.partitions)


def leaderless(topics: Iterable[Topic]) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions without a leader, and who has their records: no broker those of a diskless
    one."""
    return {
        TopicPartition(topic.name, each.partition): (
            holders(each.isr, each.eligible, each.last_known_eligible, each.placed)
            if topic.diskless is None
            else ()
        )
        for topic in topics
        for each in topic.partitions
        if each.leader < 0
    }


async def describe_topics(cluster: Cluster, names: Sequence[str] | None) -> list[Topic]:
    """These topics, or all of them (None), by name; raises ApiError for one that is not there."""
    found = (await cluster.metadata(names)).topics
    for each in found:
        if each.error_code:
            code = ErrorCode(each.error_code)
            check_there(code, each.name or "")
            raise ApiError(code, f"Topic {each.name!r}: {ERRORS[code].sentence}")
    every = sorted(each.name or "" for each in found)
    exact, diskless = await described(cluster, every)
    settings = await settings_of(cluster, every)
    live = set(cluster.brokers)
    topics = []
    for topic in sorted(found, key=lambda each: each.name or ""):
        name = topic.name or ""
        listed = exact.get(name, {})
        partitions = (
            _partition(each, listed.get(each.partition_index), live) for each in topic.partitions
        )
        in_order = tuple(sorted(partitions, key=lambda each: each.partition))
        own = settings.get(name, {})
        minimum = 0 if name in diskless else int(own.get(MINIMUM) or 1)
        constraints = _constraints(own.get(CONSTRAINTS, ""))
        told = Topic(
            name, topic.topic_id, topic.is_internal, minimum, in_order, constraints,
            diskless.get(name), is_true(own.get(IGNORES_RACKS)),
        )  # fmt: skip
        topics.append(told)
    return await _judged_by_racks(cluster, topics)


async def _judged_by_racks(cluster: Cluster, topics: list[Topic]) -> list[Topic]:
    """The topics with the moves that are under way, and with their rack violations."""
    racks = {each.broker_id: each.rack for each in (await describe_cluster(cluster)).brokers}
    try:
        async with asyncio.timeout(MOVES_SECONDS):
            moves = await under_way(cluster)
    except (ApiError, ConnectionLost, TimeoutError):
        moves = {}
    return [in_racks(topic, racks, moves) for topic in topics]


def in_racks(
    topic: Topic, racks: Mapping[int, str | None], moves: Mapping[TopicPartition, Move]
) -> Topic:
    """The topic with its moves and every rack violation; `racks` has each broker that is
    registered."""
    there = len({rack for rack in racks.values() if rack})
    wanted = None if topic.constraints is None else topic.constraints.replicas
    accepts = topic.accepts_shared_racks and wanted is None  # constraints count more

    def judged(each: Partition) -> Partition:
        move = moves.get(TopicPartition(topic.name, each.partition))
        target = each.replicas if move is None else move.target
        spread = spread_of((racks.get(broker_id) or None for broker_id in target), wanted)
        violates = spread.violates(there)
        return each._replace(
            violates_racks=violates and not accepts, shares_racks=violates and accepts, move=move
        )

    return topic._replace(partitions=tuple(map(judged, topic.partitions)))


def _partition(known: Any, exact: Any | None, live: set[int]) -> Partition:
    """From Metadata's answer and, where it was given, DescribeTopicPartitions'."""
    told = known if exact is None else exact
    observers = set(known.replica_nodes) - set(told.replica_nodes)
    return Partition(
        partition=known.partition_index,
        leader=told.leader_id if told.leader_id in live else NO_LEADER,
        leader_epoch=told.leader_epoch,
        replicas=tuple(told.replica_nodes),
        isr=tuple(told.isr_nodes),
        observers=tuple(each for each in known.replica_nodes if each in observers),
        eligible=() if exact is None else tuple(exact.eligible_leader_replicas or ()),
        last_known_eligible=() if exact is None else tuple(exact.last_known_elr or ()),
        offline=tuple(known.offline_replicas),
    )


class Described(NamedTuple):
    """What DescribeTopicPartitions tells: topic -> index -> its answer; and diskless topics with
    the placement of their partitions, from nodes that know them."""

    exact: dict[str, dict[int, Any]]
    diskless: dict[str, DisklessTopic]


async def described(cluster: Cluster, names: Sequence[str]) -> Described:
    """Ask for these topics; nothing comes from nodes that lack the request."""
    found: dict[str, dict[int, Any]] = {}
    placed: dict[str, DisklessTopic] = {}
    if not names:
        return Described(found, placed)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], unknown_tagged_fields=ASKED
    )
    while True:
        try:
            response: DescribeTopicPartitionsResponse = await cluster.send(request)
        except ApiError as fault:
            if fault.code is ErrorCode.UNSUPPORTED_VERSION:
                return Described({}, {})
            raise
        for told in untagged(DisklessTopics, response.unknown_tagged_fields).topics:
            known_topic = placed.setdefault(told.name, told)
            if known_topic is not told:
                known_topic.partitions += told.partitions
        for topic in response.topics:
            known = found.setdefault(topic.name or "", {})
            known.update({each.partition_index: each for each in topic.partitions})
        cursor = response.next_cursor
        if cursor is None:
            return Described(found, placed)
        left = [name for name in names if name >= cursor.topic_name]
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in left],
            cursor=cursor,
            unknown_tagged_fields=ASKED,
        )


def _constraints(text: str) -> Constraints | None:
    try:
        return read_constraints(text)
    except ConstraintsFault:
        return None


async def settings_of(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Topic -> the settings that descriptions need, as far as the node knows them."""
    found: dict[str, dict[str, str]] = {}
    for begin in range(0, len(names), CONFIGS_A_REQUEST):
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceKind.TOPIC,
                resource_name=name,
                configuration_keys=[MINIMUM, CONSTRAINTS, IGNORES_RACKS],
            )
            for name in names[begin : begin + CONFIGS_A_REQUEST]
        ]
        response: DescribeConfigsResponse = await cluster.send(
            DescribeConfigsRequest(resources=resources)
        )
        for result in response.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # it was deleted since it was listed
            check(result.error_code, result.error_message)
            found[result.resource_name] = {each.name: each.value or "" for each in result.configs}
    return found
