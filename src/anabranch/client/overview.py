"""A cluster at a glance: who decides, who serves, how many partitions are not as they should be.

The rule it keeps: figures are counted from one description of all topics, by the definitions of
`client.partitions`; who is the active controller is asked with DescribeQuorum, since the one that
Metadata and DescribeCluster name is only a broker that passes requests on (KIP-590).
Not here: tables, bytes on disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from anabranch.client.admin import cordoned_in, describe_cluster, full_folders
from anabranch.client.cluster import Cluster, check
from anabranch.client.connection import ConnectionLost
from anabranch.client.partitions import Illness, Topic, describe_topics, leaderless
from anabranch.client.reasons import Reasons
from anabranch.client.reassignments import under_way, waits_for
from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.errors import ApiError
from anabranch.core.types import CLUSTER_METADATA_TOPIC, TopicPartition
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from anabranch.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartitionData,
    QuorumTopicData,
)
from anabranch.core.wire.own_fields import ASKED, SaidReasons, untagged

REASONS_SECONDS = 5
"""What is ill is shown without reasons when no controller is there to ask."""


class ControllerView(NamedTuple):
    """The active controller, its epoch, the offset up to which metadata is committed, why its
    newest decisions and those of the controllers before it were made, and where all controllers
    listen."""

    controller_id: int
    epoch: int
    metadata_offset: int
    reasons: Reasons
    controllers: Mapping[int, tuple[str, int]]


class BrokerCounts(NamedTuple):
    """One broker and what it has. `behind` are replicas of it that are not in sync;
    `under_replicated` the partitions that it leads and that have such replicas anywhere."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    is_cordoned: bool
    leaders: int
    preferred: int
    replicas: int
    behind: int
    observers: int
    under_replicated: int


class Overview(NamedTuple):
    """Everything that `cluster status` and `cluster brokers` show."""

    cluster_id: str
    controlling: ControllerView
    brokers: list[BrokerCounts]
    topics: int
    partitions: int
    ill: dict[Illness, int]
    leaderless: dict[TopicPartition, tuple[int, ...]]
    """Partitions without a leader, and the brokers with their records that are down."""
    missing: int
    """Replicas that no broker has yet."""
    not_preferred: int
    """Partitions that another than their first replica leads."""
    moving: int
    """Partitions whose replicas move, or that are given a replica that was missing."""
    blocked_moves: dict[TopicPartition, tuple[int, ...]]
    """Those of them that wait for brokers which are down, and for which."""
    full: dict[int, tuple[str, ...]]
    """Folders without room, by broker."""


async def overview(cluster: Cluster) -> Overview:
    """Ask for all of it."""

    async def who_is_there() -> DescribeClusterResponse:
        await cluster.metadata([])
        return await describe_cluster(cluster)

    found = await cluster.retrying(who_is_there)
    controlling = await controller_of(cluster)
    topics = await describe_topics(cluster, None)
    moves = await under_way(cluster)
    up = {each.broker_id for each in found.brokers if not each.is_fenced}
    holders = leaderless(topics)
    brokers = [
        counts_of(each, topics, is_cordoned=each.broker_id in cordoned_in(found))
        for each in sorted(found.brokers, key=lambda each: each.broker_id)
    ]
    every = [(topic.minimum, each) for topic in topics for each in topic.partitions]
    ill = dict.fromkeys(Illness, 0)
    for minimum, partition in every:
        for illness in partition.illnesses(minimum):
            ill[illness] += 1
    return Overview(
        cluster_id=found.cluster_id,
        controlling=controlling,
        brokers=brokers,
        topics=len(topics),
        partitions=len(every),
        ill=ill,
        leaderless={
            place: tuple(each for each in row if each not in up)
            for place, row in sorted(holders.items())
        },
        missing=sum(each.missing for _, each in every),
        not_preferred=sum(0 <= each.leader != each.replicas[0] for _, each in every),
        moving=len(moves),
        blocked_moves=blocked_moves(moves, up, holders),
        full=await full_folders(cluster, found),
    )


def blocked_moves(
    moves: Mapping[TopicPartition, Move],
    up: Container[int],
    holders: Mapping[TopicPartition, tuple[int, ...]],
) -> dict[TopicPartition, tuple[int, ...]]:
    """The moves that wait for somebody who is not `up`, and for whom; `holders` has the partitions
    that nobody leads."""
    waiting = {
        place: waits_for(move, up, holders.get(place, ())) for place, move in sorted(moves.items())
    }
    return {place: down for place, down in waiting.items() if down}


async def reasons_of(cluster: Cluster) -> Reasons:
    """Why the newest decisions were made; none where no controller says so soon."""
    try:
        async with asyncio.timeout(REASONS_SECONDS):
            return (await _controller_now(cluster)).reasons
    except (ApiError, ConnectionLost, TimeoutError):
        return Reasons()


async def why_ill(topics: Sequence[Topic], cluster: Cluster) -> dict[str, list[str]]:
    """What the controller said of each partition ("flights-3") that nobody leads, or that misses
    replicas; nothing is asked where nothing is ill."""
    ill = {
        f"{topic.name}-{each.partition}": (each.leader, set(each.replicas) - set(each.isr))
        for topic in topics
        for each in topic.partitions
        if each.leader < 0 or set(each.replicas) - set(each.isr)
    }
    reasons = await reasons_of(cluster) if ill else Reasons()
    return {
        place: [told.sentence for told in reasons.of_partition(place, leader, sorted(missing))]
        for place, (leader, missing) in ill.items()
    }


async def controller_of(cluster: Cluster) -> ControllerView:
    """The active controller; a short absence of one is waited for."""
    return await cluster.retrying(lambda: _controller_now(cluster))


async def _controller_now(cluster: Cluster) -> ControllerView:
    partition = QuorumPartitionData(partition_index=0)
    asked = QuorumTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    request = DescribeQuorumRequest(topics=[asked], unknown_tagged_fields=ASKED)
    response: DescribeQuorumResponse = await cluster.send(request)
    check(response.error_code, response.error_message)
    told = response.topics[0].partitions[0]
    check(told.error_code, told.error_message)
    said = untagged(SaidReasons, response.unknown_tagged_fields).reasons
    controllers = {
        node.node_id: (node.listeners[0].host, node.listeners[0].port)
        for node in response.nodes
        if node.listeners
    }
    return ControllerView(
        told.leader_id, told.leader_epoch, told.high_watermark, Reasons(said), controllers
    )


def counts_of(
    broker: DescribeClusterBroker, topics: Sequence[Topic], *, is_cordoned: bool
) -> BrokerCounts:
    """What one broker leads and copies."""
    broker_id = broker.broker_id
    every = [(topic.minimum, each) for topic in topics for each in topic.partitions]
    held = [each for _, each in every if broker_id in each.replicas]
    led = [(minimum, each) for minimum, each in every if each.leader == broker_id]
    under = Illness.UNDER_REPLICATED
    return BrokerCounts(
        broker_id=broker_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        is_fenced=broker.is_fenced,
        is_cordoned=is_cordoned,
        leaders=len(led),
        preferred=sum(each.replicas[0] == broker_id for each in held),
        replicas=len(held),
        behind=sum(broker_id not in each.isr for each in held),
        observers=sum(broker_id in each.observers for _, each in every),
        under_replicated=sum(under in each.illnesses(minimum) for minimum, each in led),
    )
