"""Committed offsets: who may commit, what is kept, when it expires, how groups are deleted.

Rule kept: an offset is read back only once its record is committed. Expiry is Kafka's (KIP-211): a
group with members keeps the offsets of the topics that it reads; from the moment it is empty, all
of them for `offsets.retention.minutes`; offsets of a name that never had members, that long after
each commit. An offset whose client set a retention (versions 2 to 4) lives that long.

Source: Kafka 4.1's OffsetMetadataManager (behaviour), KIP-496 (deletion). Not here: transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups.group import CommittedOffset, Group
from anabranch.core.groups.members import forget_if_unused, member_fault
from anabranch.core.groups.rebalance import keep_alive
from anabranch.core.groups.records import group_deleted, offset_record
from anabranch.core.groups.states import COMPLETING_REBALANCE, DEAD, EMPTY, STABLE

if TYPE_CHECKING:
    from anabranch.core.groups.answers import Answer
    from anabranch.core.groups.coordinator import GroupCoordinator
    from anabranch.core.groups.shard import Shard

Place: TypeAlias = tuple[str, int]
"""Topic and partition index."""

MINUTE_MS = 60_000
NO_GENERATION = -1

# Committing.


def committing_group(
    coordinator: GroupCoordinator,
    group_id: str,
    generation_id: int,
    member_id: str,
    instance_id: str | None,
    now_ms: int,
) -> Group:
    """The group that may be committed to. Raises ApiError with the code that says why not."""
    group = coordinator.find(group_id, now_ms)
    if group is None:
        if generation_id >= 0:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        return coordinator.find_or_create(group_id, now_ms)
    if generation_id == NO_GENERATION and group.state is EMPTY:
        return group
    if generation_id < 0 and not member_id and instance_id is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    fault = member_fault(group, member_id, instance_id)
    if fault is not None:
        raise ApiError(fault)
    if generation_id != group.generation_id:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    keep_alive(coordinator, group, group.members[member_id])
    if group.state is COMPLETING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    return group


def commit(
    coordinator: GroupCoordinator,
    group: Group,
    offsets: Sequence[tuple[Place, CommittedOffset]],
    done: Answer,
    now_ms: int,
) -> None:
    """Write offsets; `done` is given NONE once they count. Raises ApiError when they cannot be."""
    records = [
        offset_record(group.group_id, topic, partition, committed, now_ms)
        for (topic, partition), committed in offsets
    ]

    def effect(now_ms: int) -> None:
        present = _present(coordinator, group, now_ms)
        for (topic, partition), committed in offsets:
            present.offsets.setdefault(topic, {})[partition] = committed
        coordinator.commits_total += len(offsets)
        done.give(ErrorCode.NONE)

    try:
        group.shard.write(records, now_ms, effect)
    except ApiError:
        forget_if_unused(coordinator, group, now_ms)
        raise


def _present(coordinator: GroupCoordinator, group: Group, now_ms: int) -> Group:
    """The group, or who has its name now: it may have been deleted before what is committed now was
    written, which counts all the same."""
    if group.state is not DEAD:
        return group
    known = coordinator.groups.get(group.group_id)
    if known is None:
        known = coordinator.groups[group.group_id] = Group(group.group_id, group.shard, now_ms)
    return known


# Deleting.


def delete_offsets(
    coordinator: GroupCoordinator,
    group: Group,
    places: Iterable[Place],
    now_ms: int,
    done: Answer | None = None,
) -> None:
    """Forget committed offsets; places without one are passed over. `done` is given NONE once that
    counts. Raises ApiError."""
    there = [
        (topic, partition)
        for topic, partition in places
        if partition in group.offsets.get(topic, ())
    ]
    if not there:
        _tell(done)
        return
    records = [offset_record(group.group_id, *place, None, now_ms) for place in there]

    def effect(_now_ms: int) -> None:
        _drop(group, there)
        _tell(done)

    group.shard.write(records, now_ms, effect)


def _tell(done: Answer | None) -> None:
    if done is not None:
        done.give(ErrorCode.NONE)


def _drop(group: Group, places: Iterable[Place]) -> None:
    for topic, partition in places:
        partitions = group.offsets.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            group.offsets.pop(topic, None)


def delete_group(
    coordinator: GroupCoordinator, group: Group, now_ms: int, done: Answer | None = None
) -> None:
    """Delete an empty group with its offsets; `done` is given NONE once that counts.

    Raises ApiError NON_EMPTY_GROUP, or the log's."""
    if group.state is not EMPTY:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    _delete_whole(coordinator, group, _places(group), now_ms, done)


def _delete_whole(
    coordinator: GroupCoordinator,
    group: Group,
    places: Sequence[Place],
    now_ms: int,
    done: Answer | None = None,
) -> None:
    records = [offset_record(group.group_id, *place, None, now_ms) for place in places]
    records.append(group_deleted(group.group_id, now_ms))

    def effect(now_ms: int) -> None:
        _drop(group, places)
        if group.state is EMPTY:
            coordinator.forget(group, now_ms)
            if group.offsets:  # whose commits were on their way when the deletion was written
                _present(coordinator, group, now_ms).offsets = group.offsets
        _tell(done)

    group.shard.write(records, now_ms, effect)


def _places(group: Group) -> list[Place]:
    return [(topic, partition) for topic, found in group.offsets.items() for partition in found]


def topics_deleted(coordinator: GroupCoordinator, topics: set[str], now_ms: int) -> None:
    """Offsets of topics that are no more are forgotten, in every group; in those that are being
    read, once they are (`forget_gone`)."""
    for shard in coordinator.shards.values():
        if not shard.is_loaded:
            shard.deleted_topics |= topics
    _forget(coordinator, list(coordinator.groups.values()), topics, now_ms)


def forget_gone(
    coordinator: GroupCoordinator, shard: Shard, groups: Collection[Group], now_ms: int
) -> None:
    """Forget what was read of topics that were deleted since, while it was read or while nobody led
    its partition: a topic created under that name would be read from there. The metadata shows
    every topic that an earlier leader can have known, or that it was deleted."""
    image = coordinator.broker.image
    gone = {
        topic
        for topic in set[str]().union(*(group.offsets for group in groups))
        if topic in shard.deleted_topics or image.topic(topic) is None
    }
    _forget(coordinator, groups, gone, now_ms)


def _forget(
    coordinator: GroupCoordinator, groups: Iterable[Group], topics: set[str], now_ms: int
) -> None:
    for group in groups:
        if topics.isdisjoint(group.offsets) or not group.shard.is_current:
            continue
        places = [place for place in _places(group) if place[0] in topics]
        try:
            delete_offsets(coordinator, group, places, now_ms)
        except ApiError:
            continue  # the log refuses; they expire later


# Expiring.


def expire(coordinator: GroupCoordinator, now_ms: int) -> None:
    """Forget offsets whose time is over, and empty groups that have none left."""
    retention_ms = coordinator.config.offsets_retention_minutes * MINUTE_MS
    for group in list(coordinator.groups.values()):
        if group.shard.is_current:
            try:
                _expire_group(coordinator, group, retention_ms, now_ms)
            except ApiError:
                continue  # the log refuses; the next round tries again


def _expire_group(
    coordinator: GroupCoordinator, group: Group, retention_ms: int, now_ms: int
) -> None:
    places = _places(group)
    expired = [
        place
        for place in places
        if _is_expired(group, group.offsets[place[0]][place[1]], place[0], retention_ms, now_ms)
    ]
    coordinator.expired_offsets_total += len(expired)
    if len(expired) < len(places) or group.state is not EMPTY:
        delete_offsets(coordinator, group, expired, now_ms)
    elif not group.pending_members and group.shard.pending_effects == 0:
        _delete_whole(coordinator, group, expired, now_ms)


def _is_expired(
    group: Group, committed: CommittedOffset, topic: str, retention_ms: int, now_ms: int
) -> bool:
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms <= now_ms
    since_ms = committed.commit_timestamp_ms
    if group.protocol_type:
        if group.state is EMPTY:
            since_ms = max(group.state_since_ms, 0) or since_ms
        elif not (group.is_consumer and group.state is STABLE) or group.reads(topic):
            return False
    return now_ms - since_ms >= retention_ms
