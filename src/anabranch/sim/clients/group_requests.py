"""Requests about a group's offsets, as all simulated clients of groups send and read them.

What: finding the coordinator of a group, the partitions of a commit, asking what is committed.
Not here: when they are sent, and what a refusal leads to (the clients).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.core.types import TopicPartition
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from anabranch.sim.clients.client import NOBODY

KEY_OF_GROUPS, KEY_OF_IDS = 0, 1


def find_coordinator(name: str, key_type: int = KEY_OF_GROUPS) -> FindCoordinatorRequest:
    """Asks who coordinates a group, or a transactional id; fit for all versions."""
    return FindCoordinatorRequest(key=name, key_type=key_type, coordinator_keys=[name])


def coordinator_in(response: Any) -> int:
    """The coordinator that an answer names, NOBODY where it names none, or none came."""
    found = response.coordinators[0] if response and response.coordinators else response
    if found is None or found.error_code or found.node_id < 0:
        return NOBODY
    return int(found.node_id)


def offsets_to_commit(offsets: Mapping[TopicPartition, int]) -> list[OffsetCommitRequestTopic]:
    """The partitions of an OffsetCommit, in the order of the offsets."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for place, offset in offsets.items():
        topic = topics.setdefault(
            place.topic, OffsetCommitRequestTopic(name=place.topic, partitions=[])
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        )
    return list(topics.values())


def committed_offsets(
    group: str, places: Sequence[TopicPartition], *, stable: bool = False
) -> OffsetFetchRequest:
    """Asks what a group has committed; with `stable`, of what is decided only."""
    topics = [
        OffsetFetchRequestTopics(
            name=topic, partition_indexes=[index for name, index in places if name == topic]
        )
        for topic in sorted({place.topic for place in places})
    ]
    wanted = OffsetFetchRequestGroup(group_id=group, topics=topics)
    return OffsetFetchRequest(groups=[wanted], require_stable=stable)


def group_in(response: Any) -> Any:
    """The part of an OffsetFetch answer that is about the group; None where there is none."""
    answer = response.groups[0] if response is not None and response.groups else response
    return None if answer is None or answer.error_code else answer


def partitions_in(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of an answer, commit or fetch, each with what it says of it."""
    for topic in answer.topics:
        for part in topic.partitions:
            yield TopicPartition(topic.name, part.partition_index), part


def offsets_in(response: Any) -> dict[TopicPartition, int] | None:
    """The offsets of an answer; None when it has an error, or one of them is not decided."""
    answer = group_in(response)
    if answer is None:
        return None
    parts = list(partitions_in(answer))
    if any(part.error_code for _, part in parts):
        return None
    return {place: part.committed_offset for place, part in parts}
