"""How far behind a flow is: records, bytes and seconds, of each partition and in all.

What: `flow_lag` compares the source's ends with the target's positions. Records are offsets between
the two (those of markers and aborted records count too); bytes are their share of the partition's
size at the source; seconds are the age of the first record that is not mirrored. Rule kept: what
cannot be told is None, never 0.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import fetch, list_offsets
from anabranch.core.errors import ApiError
from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.topics import TopicShape
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from anabranch.pipelines.mirror.clusters import cluster_of
from anabranch.pipelines.mirror.positions import Ledger, Place
from anabranch.pipelines.mirror.remote_topics import Topics, shapes

AT_ONCE = 16


class PartitionLag(NamedTuple):
    """One partition of the source."""

    flow: str
    topic: str
    partition: int
    remote: str
    position: int | None
    """The last offset that was mirrored; None without one."""
    source_end: int | None
    """The offset behind the last record that can be mirrored."""
    records: int | None
    size_bytes: int | None
    seconds: float | None
    why: str = ""


class FlowLag(NamedTuple):
    """A flow, and its partitions."""

    flow: str
    records: int
    size_bytes: int
    seconds: float
    partitions: list[PartitionLag]
    unknown: int
    """Partitions whose lag cannot be told."""


async def flow_lag(flow: Flow) -> FlowLag:
    """Look at both ends of a flow. Raises ApiError, ConnectionLost."""
    async with cluster_of(flow.source_client, "status") as source, cluster_of(
        flow.target_client, "status"
    ) as target:  # fmt: skip
        ledger = Ledger(flow.policy)
        await ledger.read(target, looks=True)
        topics = Topics(flow, lambda _: None)
        return await lag_of(flow, source, ledger, topics.wanted(await shapes(source)))


async def lag_of(
    flow: Flow, source: Cluster, ledger: Ledger, mirrored: Mapping[str, TopicShape]
) -> FlowLag:
    """Compare the ends at the source with a ledger that was read; `mirrored` has the source's
    topics by their names on the target. Those that were deleted there since are left out. Raises
    ApiError, ConnectionLost."""
    there = await shapes(source)
    mirrored = {remote: each for remote, each in mirrored.items() if each.name in there}
    sizes = await log_sizes(source, [there[each.name] for each in mirrored.values()])
    limit = asyncio.Semaphore(AT_ONCE)

    async def look(remote: str, topic: str, count: int) -> list[PartitionLag]:
        async with limit:
            return await _topic_lag(source, flow, ledger, remote, topic, count, sizes)

    found = await asyncio.gather(
        *(look(remote, each.name, each.partitions) for remote, each in mirrored.items())
    )
    return summed(flow.name, [each for all in found for each in all])


def summed(flow: str, partitions: list[PartitionLag]) -> FlowLag:
    """The lag of a flow: records and bytes of all, the longest time."""
    return FlowLag(
        flow,
        sum(each.records or 0 for each in partitions),
        sum(each.size_bytes or 0 for each in partitions),
        max((each.seconds or 0.0 for each in partitions), default=0.0),
        partitions,
        sum(each.records is None for each in partitions),
    )


async def _topic_lag(
    source: Cluster, flow: Flow, ledger: Ledger, remote: str, topic: str, count: int,
    sizes: dict[Place, int],
) -> list[PartitionLag]:  # fmt: skip
    isolation = READ_COMMITTED if flow.read_committed else 0
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    why = ""
    try:
        starts = await list_offsets(source, topic, EARLIEST, ready_only=True)
        ends = await list_offsets(source, topic, LATEST, isolation_level=isolation, ready_only=True)
    except (ApiError, ConnectionLost) as fault:
        why = str(fault)
    found = []
    for partition in range(count):
        place = topic, partition
        position = ledger.positions.get(place)
        end = ends.get(partition)
        if end is None or partition not in starts:
            why = why or "the partition has no leader"
            found.append(
                PartitionLag(flow.name, topic, partition, remote, position, None, None, None, None,
                             why)
            )  # fmt: skip
            continue
        start = starts[partition]
        following = start if position is None else max(position + 1, start)
        records = max(0, end - following)
        share = round(sizes.get(place, 0) * records / (end - start)) if end > start else 0
        seconds = await _age(source, topic, partition, following) if records else 0.0
        found.append(
            PartitionLag(
                flow.name, topic, partition, remote, position, end, records, share, seconds
            )
        )
    return found


async def _age(source: Cluster, topic: str, partition: int, offset: int) -> float | None:
    """The age of a record that is in the log, in seconds; None where it has no time."""
    try:
        part = (await fetch(source, topic, {partition: offset}, partition_max_bytes=1))[0]
    except (ApiError, ConnectionLost):
        return None
    for _, header in walk(part.records):
        if header.last_offset >= offset:
            if header.max_timestamp < 0:
                return None
            return max(0.0, time.time() - header.max_timestamp / 1000)
    return None


async def log_sizes(cluster: Cluster, topics: Iterable[TopicShape]) -> dict[Place, int]:
    """The bytes of each partition's largest replica; brokers that do not answer are left out."""
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=each.name, partitions=list(range(each.partitions)))
            for each in topics
        ]
    )
    sizes: dict[Place, int] = {}
    for broker_id in sorted(cluster.brokers):
        try:
            answer = await cluster.send_to(broker_id, request)
        except (ApiError, ConnectionLost):
            continue
        for folder in answer.results:
            for topic in folder.topics:
                for each in topic.partitions:
                    place = topic.name, each.partition_index
                    sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes
