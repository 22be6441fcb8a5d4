"""Groups as an administrator sees them: list, describe, lag, move and delete offsets.

Each question goes to the broker that coordinates the group, and again to the next one when it has
moved. Raises `ApiError` with the code of whatever is refused. Not here: being a member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from anabranch.client.cluster import Cluster, check, no_leader
from anabranch.client.connection import ConnectionLost
from anabranch.client.every_broker import Fault, ask_every_broker, coordinating, still_loading
from anabranch.client.fetch import list_offsets
from anabranch.core.coordination.groups.classic.subscription import assigned_partitions
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import LATEST
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from anabranch.core.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from anabranch.core.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from anabranch.core.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

T = TypeVar("T")
Place = tuple[str, int]
CONSUMER = "consumer"
GROUP, TRANSACTION = 0, 1
"""What FindCoordinator calls the kinds of keys."""


class Progress(NamedTuple):
    """How far a group is in one partition, and who reads it."""

    topic: str
    partition: int
    committed: int
    """-1 when the group has committed nothing there."""
    end: int
    """-1 when the partition has no leader, or is no more."""
    member_id: str
    client_id: str
    client_host: str

    @property
    def lag(self) -> int | None:
        """Records that are not read yet; None without a committed offset or a known end."""
        unknown = self.committed < 0 or self.end < 0
        return None if unknown else max(0, self.end - self.committed)


class Groups(NamedTuple):
    """What came of asking all brokers for their groups."""

    groups: list[ListedGroup]
    """By name."""
    missing: dict[str, Fault]
    """The brokers and partitions that groups are missing of, perhaps all of theirs, and why."""


async def list_groups(cluster: Cluster) -> Groups:
    """The groups of all brokers. What may pass is waited for, as `ask_every_broker` says."""

    async def ask(broker_id: int) -> tuple[list[ListedGroup], Fault | None]:
        response: ListGroupsResponse = await cluster.send_to(broker_id, ListGroupsRequest())
        return response.groups, still_loading(response.error_code)

    told, faults = await ask_every_broker(cluster, ask)
    groups = {group.group_id: group for group in told}
    missing = await _missing(cluster, faults, exists=bool(groups))
    return Groups([groups[name] for name in sorted(groups)], missing)


async def _missing(cluster: Cluster, faults: dict[int, Fault], *, exists: bool) -> dict[str, Fault]:
    """Whose groups are missing: of the brokers that cannot answer, those that coordinate some."""
    try:
        partitions = await coordinating(cluster, OFFSETS_TOPIC, exists=exists)
    except (ApiError, ConnectionLost) as fault:
        return {**{f"broker {each}": faults[each] for each in sorted(faults)}, OFFSETS_TOPIC: fault}
    leaders = {each.leader_id for each in partitions} or faults.keys()
    missing = {f"broker {each}": faults[each] for each in sorted(faults) if each in leaders}
    for each in partitions:
        if each.leader_id < 0:
            place = OFFSETS_TOPIC, each.partition_index
            missing["{}-{}".format(*place)] = no_leader(*place)
    return missing


async def describe_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """State and members; raises ApiError GROUP_ID_NOT_FOUND for a name of no group."""

    async def ask(broker_id: int) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id])
        response: DescribeGroupsResponse = await cluster.send_to(broker_id, request)
        group = response.groups[0]
        check(group.error_code, group.error_message)
        if group.group_state == "Dead":
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    return await coordinated(cluster, group_id, ask)


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[Place, int]:
    """(topic, partition) -> the offset that the group has committed."""

    async def ask(broker_id: int) -> dict[Place, int]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        )
        response: OffsetFetchResponse = await cluster.send_to(broker_id, request)
        group = response.groups[0]
        check(group.error_code)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }

    return await coordinated(cluster, group_id, ask)


async def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Set offsets of a group without members; raises ApiError NON_EMPTY_GROUP when it has some."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic[topic].append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(name=topic, partitions=each)
            for topic, each in by_topic.items()
        ],
    )

    async def ask(broker_id: int) -> None:
        response: OffsetCommitResponse = await cluster.send_to(broker_id, request)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    raise ApiError(
                        ErrorCode.NON_EMPTY_GROUP,
                        f"Group {group_id} has members, so its offsets cannot be changed: stop "
                        "them.",
                    )
                check(partition.error_code, of=f"{topic.name}-{partition.partition_index}")

    await coordinated(cluster, group_id, ask)


async def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group without members, with its offsets."""

    async def ask(broker_id: int) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        response: DeleteGroupsResponse = await cluster.send_to(broker_id, request)
        check(response.results[0].error_code, of=group_id)

    await coordinated(cluster, group_id, ask)


async def progress(cluster: Cluster, group_id: str) -> tuple[DescribedGroup, list[Progress]]:
    """A group, and how far it is in every partition that it has committed or is assigned."""
    group = await describe_group(cluster, group_id)
    committed = await committed_offsets(cluster, group_id)
    readers: dict[Place, Any] = {}
    if group.protocol_type == CONSUMER:
        for member in group.members:
            for place in assigned_partitions(member.member_assignment):
                readers[place] = member
    places = sorted({*committed, *readers})
    ends = await offsets_at(cluster, places, LATEST, ready_only=True)
    return group, [
        Progress(
            *place,
            committed.get(place, -1),
            ends.get(place, -1),
            *(
                (reader.member_id, reader.client_id, reader.client_host)
                if (reader := readers.get(place)) is not None
                else ("", "", "")
            ),
        )
        for place in places
    ]


async def offsets_at(
    cluster: Cluster, places: Iterable[Place], timestamp: int, *, ready_only: bool = False
) -> dict[Place, int]:
    """The offset of the first record at or after a time (ms since 1970), or LATEST, EARLIEST.

    Places that do not exist are left out; with `ready_only`, those without a leader that can say
    it, too."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        by_topic[topic].append(partition)
    known = {
        topic.name: {each.partition_index for each in topic.partitions}
        for topic in (await cluster.metadata(list(by_topic))).topics
    }
    found: dict[Place, int] = {}
    for topic, partitions in by_topic.items():
        there = known.get(topic, set()).intersection(partitions)
        if there:  # else it was deleted, and the group's offsets go with it
            answers = await list_offsets(
                cluster, topic, timestamp, sorted(there), ready_only=ready_only
            )
            found.update({(topic, partition): each for partition, each in answers.items()})
    return found


async def coordinated(
    cluster: Cluster, key: str, ask: Callable[[int], Awaitable[T]], key_type: int = GROUP
) -> T:
    """Ask the coordinator of a group or a transactional id; where that has moved, the next one."""

    async def attempt() -> T:
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        response: FindCoordinatorResponse = await cluster.send(request)
        found = response.coordinators[0]
        check(found.error_code, found.error_message)
        if found.node_id not in cluster.brokers:
            await cluster.metadata([])
        return await ask(found.node_id)

    return await cluster.retrying(attempt)
