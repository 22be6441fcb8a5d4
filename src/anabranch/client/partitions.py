"""Partitions as an operator sees them: who leads, who is in sync, and what is wrong with them.

What: descriptions of topics with their partitions, and the four ill states that Kafka's
`kafka-topics.sh` knows. Rules kept, as there: under-replicated is an ISR smaller than the replicas;
under and at the minimum compare the ISR with `min.insync.replicas` as it is configured, also where
there are fewer replicas than that, and a partition without a leader is under it; unavailable has no
leader that serves. Observers are replicas in none of them: what Metadata names beyond
DescribeTopicPartitions are the observers.
Source: Kafka 4.1's TopicCommand, KIP-351, KIP-966. Not here: tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from anabranch.client.admin import ResourceKind
from anabranch.client.cluster import Cluster, check, error_code
from anabranch.core.errors import ERRORS, ApiError, ErrorCode
from anabranch.core.types import TopicId
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

MINIMUM = "min.insync.replicas"
NO_LEADER = -1
CONFIGS_A_REQUEST = 500
"""Topics whose settings are asked for at once, so that no answer grows without a limit."""


class Illness(Enum):
    """What may be wrong with a partition; the values are the names in options and JSON."""

    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"
    UNAVAILABLE = "unavailable"


class Partition(NamedTuple):
    """One partition; `leader` is -1 while nobody leads it or its leader is not there."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    observers: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

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
        return frozenset(found)


class Topic(NamedTuple):
    """One topic with its partitions in order."""

    name: str
    topic_id: TopicId
    is_internal: bool
    minimum: int
    partitions: tuple[Partition, ...]


async def describe_topics(cluster: Cluster, names: Sequence[str] | None) -> list[Topic]:
    """These topics, or all of them (None), by name; raises ApiError for one that is not there."""
    found = (await cluster.metadata(names)).topics
    for each in found:
        if each.error_code:
            code = error_code(each.error_code)
            raise ApiError(code, f"Topic {each.name!r}: {ERRORS[code].sentence}")
    every = sorted(each.name or "" for each in found)
    exact = await _described(cluster, every)
    minimums = await minimums_of(cluster, every)
    live = set(cluster.brokers)
    topics = []
    for topic in sorted(found, key=lambda each: each.name or ""):
        name = topic.name or ""
        listed = exact.get(name, {})
        partitions = (
            _partition(each, listed.get(each.partition_index), live) for each in topic.partitions
        )
        in_order = tuple(sorted(partitions, key=lambda each: each.partition))
        minimum = minimums.get(name, 1)
        topics.append(Topic(name, topic.topic_id, topic.is_internal, minimum, in_order))
    return topics


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


async def _described(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[int, Any]]:
    """Topic -> index -> DescribeTopicPartitions' answer; nothing from nodes that lack it."""
    found: dict[str, dict[int, Any]] = {}
    if not names:
        return found
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    while True:
        try:
            response: DescribeTopicPartitionsResponse = await cluster.send(request)
        except ApiError as fault:
            if fault.code is ErrorCode.UNSUPPORTED_VERSION:
                return {}
            raise
        for topic in response.topics:
            known = found.setdefault(topic.name or "", {})
            known.update({each.partition_index: each for each in topic.partitions})
        cursor = response.next_cursor
        if cursor is None:
            return found
        left = [name for name in names if name >= cursor.topic_name]
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in left], cursor=cursor
        )


async def minimums_of(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Topic -> its min.insync.replicas."""
    found: dict[str, int] = {}
    for begin in range(0, len(names), CONFIGS_A_REQUEST):
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceKind.TOPIC, resource_name=name, configuration_keys=[MINIMUM]
            )
            for name in names[begin : begin + CONFIGS_A_REQUEST]
        ]
        response: DescribeConfigsResponse = await cluster.send(
            DescribeConfigsRequest(resources=resources)
        )
        for result in response.results:
            check(result.error_code, result.error_message)
            for each in result.configs:
                if each.name == MINIMUM:
                    found[result.resource_name] = int(each.value or 1)
    return found
