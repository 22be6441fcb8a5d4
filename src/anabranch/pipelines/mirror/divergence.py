"""Whether the source's log is still the one that was mirrored, by its leader epochs.

What: `epoch_ends` asks where the leader epoch of the last mirrored batch ends now. An end before
the position says that the source lost what was mirrored (an election of a leader that was not in
sync), whatever the log has grown to since. Rule kept: what a broker does not answer is no
divergence; the offsets themselves are checked by fetching. Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.core.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Place = tuple[str, int]


async def epoch_ends(source: Cluster, epochs: Mapping[Place, int]) -> dict[Place, int]:
    """Place -> the offset at which a leader epoch ends there, of those that are answered."""
    found: dict[Place, int] = {}
    if not epochs:
        return found
    try:
        by_leader = await _by_leader(source, epochs)
    except (ApiError, ConnectionLost):
        return found
    for leader, topics in by_leader.items():
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ]
        )
        try:
            answer: OffsetForLeaderEpochResponse = await source.send_to(leader, request)
        except (ApiError, ConnectionLost):
            continue
        for result in answer.topics:
            for each in result.partitions:
                if not each.error_code and each.end_offset >= 0:
                    found[result.topic, each.partition] = each.end_offset
    return found


async def _by_leader(
    source: Cluster, epochs: Mapping[Place, int]
) -> dict[int, dict[str, list[OffsetForLeaderPartition]]]:
    known = (await source.metadata(sorted({topic for topic, _ in epochs}))).topics
    asked: dict[int, dict[str, list[OffsetForLeaderPartition]]] = defaultdict(dict)
    for topic in known:
        for each in topic.partitions:
            epoch = epochs.get((topic.name or "", each.partition_index))
            if epoch is not None and each.leader_id in source.brokers:
                asked[each.leader_id].setdefault(topic.name or "", []).append(
                    OffsetForLeaderPartition(partition=each.partition_index, leader_epoch=epoch)
                )
    return asked
