"""What moves of replicas copy: bytes, and how long that takes under a throttle.

What: the size of each partition as its leader's broker tells it (DescribeLogDirs), times the
replicas that are new. Rule kept: the estimate is a lower bound, since what is produced meanwhile is
copied too; a broker that does not answer leaves its partitions out, and that is said. Not here:
moves (`reassignments.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.client.admin import describe_log_dirs
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.controller.moves.reassignment import Row
from anabranch.core.errors import ApiError
from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.describe_log_dirs import DescribeLogDirsPartition


class Cost(NamedTuple):
    """What a set of moves copies."""

    copied_bytes: int
    """To all replicas that are new."""
    most_bytes: int
    """Into, or out of, the one broker that has most to do: a throttle is a broker's."""
    unknown: int
    """Partitions whose size was not told."""

    def seconds(self, rate: int) -> float:
        """How long copying takes at least, at so many bytes a second and broker."""
        return self.most_bytes / rate


async def cost_of(
    cluster: Cluster, moves: Mapping[TopicPartition, Row], before: Mapping[TopicPartition, Row]
) -> Cost:
    """What `moves` copy, `before` being the replicas that the partitions have."""
    growing = {
        place: [each for each in row if each not in before[place]]
        for place, row in moves.items()
        if place in before and set(row) - set(before[place])
    }
    leaders = await _leaders(cluster, growing)
    sizes = await log_sizes(cluster, set(leaders.values()))
    into: Counter[int] = Counter()
    out: Counter[int] = Counter()
    unknown = 0
    for place, new in growing.items():
        leader = leaders.get(place, -1)
        size = sizes.get((leader, place))
        if size is None:
            unknown += 1
            continue
        out[leader] += size * len(new)
        into.update(dict.fromkeys(new, size))
    most = max([*into.values(), *out.values()], default=0)
    return Cost(sum(into.values()), most, unknown)


async def _leaders(
    cluster: Cluster, places: Mapping[TopicPartition, object]
) -> dict[TopicPartition, int]:
    if not places:
        return {}
    found = (await cluster.metadata(sorted({place.topic for place in places}))).topics
    return {
        place: each.leader_id
        for topic in found
        for each in topic.partitions
        if (place := TopicPartition(topic.name or "", each.partition_index)) in places
        and each.leader_id >= 0
    }


async def log_sizes(cluster: Cluster, brokers: set[int]) -> dict[tuple[int, TopicPartition], int]:
    """Bytes of each partition on each of these brokers, as far as they tell it."""
    told = await described_logs(cluster, brokers)
    return {where: each.partition_size for where, each in told.items()}


async def described_logs(
    cluster: Cluster, brokers: set[int]
) -> dict[tuple[int, TopicPartition], DescribeLogDirsPartition]:
    """What these brokers tell of their logs."""
    logs = {}
    for broker_id in sorted(brokers):
        try:
            folders = await describe_log_dirs(cluster, broker_id)
        except (ApiError, ConnectionLost):
            continue
        for folder in folders:
            for topic in folder.topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    if not each.is_future_key:  # a copy in another folder of the broker
                        logs[broker_id, place] = each
    return logs
