"""Committed offsets: who may commit, what is kept, when it expires, how groups are deleted.

Rules kept: an offset is read back only once its record is committed; whatever forgets offsets heeds
commits in flight; an offset belongs to the topic that it was committed for, by id. Expiry is
Kafka's (KIP-211): a group with members keeps the offsets of the topics that it reads; from the
moment it is empty, all of them for `offsets.retention.minutes`; offsets of a name that never had
members, that long after each commit. Unlike in Kafka, what is committed to a group that is empty
already is kept that long as well: who assigns partitions itself commits under such a name. An
offset whose client set a retention (versions 2 to 4) lives that long.

An offset that a transaction commits counts once the transaction is committed (`undecided`).

Source: Kafka 4.1's OffsetMetadataManager (behaviour), KIP-496 (deletion), KIP-447 (transactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.classic.group import Group
from anabranch.core.coordination.groups.classic.group_records import group_deleted
from anabranch.core.coordination.groups.classic.members import forget_if_unused, member_fault
from anabranch.core.coordination.groups.classic.rebalance import expel_silent, keep_alive
from anabranch.core.coordination.groups.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    STABLE,
)
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.in_flight import Place
from anabranch.core.coordination.groups.offset_records import offset_record
from anabranch.core.coordination.shard import in_writes
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from anabranch.core.coordination.answers import Answer
    from anabranch.core.coordination.groups.host import Groups
    from anabranch.core.coordination.groups.shard import Shard
    from anabranch.core.metadata.image import MetadataImage

MINUTE_MS = 60_000
NO_GENERATION = -1

# Committing.


def committing_group(
    coordinator: Groups,
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


def transactions_group(
    coordinator: Groups,
    group_id: str,
    generation_id: int,
    member_id: str,
    instance_id: str | None,
    now_ms: int,
) -> Group:
    """The group that a transaction may commit to: of a member, in its generation; of a client that
    does not say who it is, always (KIP-447). Raises ApiError."""
    group = coordinator.find(group_id, now_ms)
    if group is None:
        if generation_id >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return coordinator.find_or_create(group_id, now_ms)
    is_named = bool(member_id) or instance_id is not None
    if generation_id < 0 and (group.state is EMPTY or not is_named):
        return group
    fault = member_fault(group, member_id, instance_id)
    if fault is not None:
        raise ApiError(fault)
    if generation_id != group.generation_id:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return group


def commit(
    coordinator: Groups,
    group: Group,
    offsets: Sequence[tuple[Place, CommittedOffset]],
    done: Answer,
    now_ms: int,
) -> None:
    """Write offsets; `done` is given NONE once they count. Raises ApiError when they cannot be."""
    group_id, shard = group.group_id, group.shard
    places = [place for place, _ in offsets]
    records = [
        offset_record(group_id, topic, partition, committed, now_ms)
        for (topic, partition), committed in offsets
    ]

    def effect(now_ms: int) -> None:
        shard.in_flight.end(group_id, places)
        present = _present(coordinator, group, now_ms)
        for (topic, partition), committed in offsets:
            present.offsets.setdefault(topic, {})[partition] = committed
        coordinator.commits_total += len(offsets)
        done.give(ErrorCode.NONE)

    shard.in_flight.begin(group_id, places)
    try:
        shard.write(records, now_ms, effect)
    except ApiError:
        shard.in_flight.end(group_id, places)
        forget_if_unused(coordinator, group, now_ms)
        raise
    shard.undecided.replace(group_id, places)


def commit_in_transaction(
    coordinator: Groups,
    group: Group,
    offsets: Sequence[tuple[Place, CommittedOffset]],
    producer: tuple[int, int],
    done: Answer,
    now_ms: int,
) -> None:
    """Write offsets that count if the transaction of `producer` (id and epoch) is committed; `done`
    is given NONE once they are safe. Raises ApiError."""
    group_id, shard = group.group_id, group.shard
    producer_id, epoch = producer
    records = [
        offset_record(group_id, topic, partition, committed, now_ms)
        for (topic, partition), committed in offsets
    ]

    def effect(_now_ms: int) -> None:
        done.give(ErrorCode.NONE)

    try:
        shard.replica.producers.check_epoch(producer_id, epoch)
        how = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}
        shard.write(records, now_ms, effect, **how)
    except ApiError:
        forget_if_unused(coordinator, group, now_ms)
        raise
    for place, committed in offsets:
        shard.undecided.add(producer_id, (group_id, place), committed)


def decide(
    coordinator: Groups,
    shard: Shard,
    marker: bytearray,
    producer_id: int,
    now_ms: int,
    *,
    committed: bool,
) -> None:
    """Write a transaction's marker: once it is committed, the offsets that the transaction
    committed count, or are forgotten. Raises ApiError."""
    decided = shard.undecided.take(producer_id)

    def effect(now_ms: int) -> None:
        kept = shard.undecided.end(decided, committed=committed)
        for (group_id, (topic, partition)), offset in kept:
            group = _named(coordinator, shard, group_id, now_ms)
            group.offsets.setdefault(topic, {})[partition] = offset
            coordinator.commits_total += 1
        for group_id in dict.fromkeys(group_id for group_id, _ in decided):
            known = coordinator.groups.get(group_id)
            if known is not None:
                forget_if_unused(coordinator, known, now_ms)

    try:
        shard.write_batch(marker, now_ms, effect)
    except ApiError:
        shard.undecided.restore(producer_id, decided)
        raise


def _present(coordinator: Groups, group: Group, now_ms: int) -> Group:
    """The group, or what has its name now: it may have been deleted before what is committed now
    was written, which counts all the same."""
    if group.state is not DEAD:
        return group
    return _named(coordinator, group.shard, group.group_id, now_ms)


def _named(coordinator: Groups, shard: Shard, group_id: str, now_ms: int) -> Group:
    """The group of that name, which may be new."""
    known = coordinator.groups.get(group_id)
    if known is None:
        known = coordinator.groups[group_id] = Group(group_id, shard, now_ms)
    return known


# Deleting.


def delete_offsets(
    coordinator: Groups,
    group: Group,
    places: Iterable[Place],
    now_ms: int,
    done: Answer | None = None,
) -> None:
    """Forget committed offsets, also those whose commits are in flight; places without one are
    passed over. `done` is given NONE once that counts. Raises ApiError."""
    under_way = group.shard.under_way(group.group_id)
    there = [
        (topic, partition)
        for topic, partition in places
        if partition in group.offsets.get(topic, ()) or (topic, partition) in under_way
    ]
    if there:
        _write_deletion(coordinator, group.shard, group.group_id, there, now_ms, done)
    elif done is not None:
        group.shard.prove(done, now_ms)


def _write_deletion(
    coordinator: Groups,
    shard: Shard,
    group_id: str,
    places: Sequence[Place],
    now_ms: int,
    done: Answer | None = None,
) -> None:
    records = [offset_record(group_id, *place, None, now_ms) for place in places]

    def effect(_now_ms: int) -> None:
        _drop(coordinator, group_id, places)
        _tell(done)

    shard.write(records, now_ms, effect)
    shard.undecided.replace(group_id, places)


def _tell(done: Answer | None) -> None:
    if done is not None:
        done.give(ErrorCode.NONE)


def _drop(coordinator: Groups, group_id: str, places: Iterable[Place]) -> Group | None:
    """Take offsets from the group of that name, which may be another than when that was written."""
    group = coordinator.groups.get(group_id)
    if group is None:
        return None
    for topic, partition in places:
        partitions = group.offsets.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            group.offsets.pop(topic, None)
    return group


def delete_group(
    coordinator: Groups, group: Group, now_ms: int, done: Answer | None = None
) -> None:
    """Delete an empty group with its offsets; `done` is given NONE once that counts.

    Members whose session is over do not count. Raises ApiError NON_EMPTY_GROUP, or the log's."""
    expel_silent(coordinator, group, now_ms)
    if group.state is not EMPTY:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    under_way = group.shard.under_way(group.group_id)
    places = list(dict.fromkeys([*_places(group), *under_way]))
    _delete_whole(coordinator, group, places, now_ms, done)


def _delete_whole(
    coordinator: Groups,
    group: Group,
    places: Sequence[Place],
    now_ms: int,
    done: Answer | None = None,
) -> None:
    group_id = group.group_id
    records = [offset_record(group_id, *place, None, now_ms) for place in places]
    records.append(group_deleted(group_id, now_ms))

    def effect(now_ms: int) -> None:
        present = _drop(coordinator, group_id, places)
        if present is not None and present.state is EMPTY:
            coordinator.forget(present, now_ms)
            if present.offsets:  # of the topics that came in between, as the log has it
                _present(coordinator, present, now_ms).offsets = present.offsets
        _tell(done)

    group.shard.write(records, now_ms, effect)
    group.shard.undecided.replace(group_id, places)


def _places(group: Group) -> list[Place]:
    return [(topic, partition) for topic, found in group.offsets.items() for partition in found]


# Topics that are no more.


def current_topic_id(image: MetadataImage, topic: str) -> TopicId:
    """The id of the topic that has this name now, which only its own offsets have; all zeros, which
    none has, when there is no such topic."""
    return image.topic_ids_by_name.get(topic, ZERO_TOPIC_ID)


def is_of(topic_id: TopicId, committed: CommittedOffset) -> bool:
    """Whether an offset was committed for this very topic, not for one that had its name before."""
    return committed.topic_id == topic_id != ZERO_TOPIC_ID


def topics_deleted(coordinator: Groups, topics: set[str], now_ms: int) -> None:
    """Offsets of topics that are no more are forgotten, in every group, also those whose commits
    are in flight; in groups that are being read, once they are (`forget_gone`)."""
    doomed: dict[tuple[Shard, str], dict[Place, None]] = {}
    for group in coordinator.groups.values():
        for topic in topics & group.offsets.keys():
            of_group = doomed.setdefault((group.shard, group.group_id), {})
            of_group.update(dict.fromkeys((topic, each) for each in group.offsets[topic]))
    for shard in coordinator.shards.values():
        for group_id in dict.fromkeys((*shard.in_flight.groups(), *shard.undecided.groups())):
            places = [each for each in shard.under_way(group_id) if each[0] in topics]
            if places:
                doomed.setdefault((shard, group_id), {}).update(dict.fromkeys(places))
    for (shard, group_id), places_of in doomed.items():
        _forget(coordinator, shard, group_id, list(places_of), now_ms)


def forget_gone(coordinator: Groups, shard: Shard, groups: Iterable[Group], now_ms: int) -> None:
    """Forget what was read of topics that were deleted while it was read, or while no broker led
    its partition; also what a transaction has yet to decide. The metadata shows every topic that an
    earlier leader can have known, or that it was deleted.

    Where an undecided offset is of the topic that is there, nothing is written, lest it goes, too:
    its marker, or a round of expiry, takes care of what is gone."""
    undecided = list(shard.undecided.offsets())
    lasting = {key for key, each in undecided if not _is_gone(coordinator, key[1], each)}
    gone: dict[str, dict[Place, None]] = {}
    for group in groups:
        for place in _places(group):
            if _is_gone(coordinator, place, _at(group, place)):
                gone.setdefault(group.group_id, {})[place] = None
            elif undecided:
                lasting.add((group.group_id, place))
    for (group_id, place), each in undecided:
        if _is_gone(coordinator, place, each):
            gone.setdefault(group_id, {})[place] = None
    for group_id, places in gone.items():
        doomed = [place for place in places if (group_id, place) not in lasting]
        if doomed:
            _forget(coordinator, shard, group_id, doomed, now_ms)


def _at(group: Group, place: Place) -> CommittedOffset:
    topic, partition = place
    return group.offsets[topic][partition]


def _is_gone(coordinator: Groups, place: Place, committed: CommittedOffset) -> bool:
    return not is_of(current_topic_id(coordinator.broker.image, place[0]), committed)


def _forget(
    coordinator: Groups,
    shard: Shard,
    group_id: str,
    places: Sequence[Place],
    now_ms: int,
) -> None:
    if not shard.is_current:
        return
    try:
        for some in in_writes(places):
            _write_deletion(coordinator, shard, group_id, some, now_ms)
    except ApiError:
        return  # the log refuses; a round of expiry tries again; they are not told meanwhile


# Expiring.


def expire(coordinator: Groups, now_ms: int) -> None:
    """Forget offsets whose time is over, and empty groups that have none left."""
    retention_ms = coordinator.config.offsets_retention_minutes * MINUTE_MS
    for group in list(coordinator.groups.values()):
        if group.shard.is_current:
            try:
                _expire_group(coordinator, group, retention_ms, now_ms)
            except ApiError:
                continue  # the log refuses; the next round tries again


def _expire_group(coordinator: Groups, group: Group, retention_ms: int, now_ms: int) -> None:
    """What is in flight is left alone: it is younger than what it replaces."""
    under_way = group.shard.under_way(group.group_id)
    places = _places(group)
    expired = [
        place
        for place in places
        if place not in under_way
        and (
            _is_gone(coordinator, place, _at(group, place))
            or _is_expired(group, place, retention_ms, now_ms)
        )
    ]
    is_whole = len(expired) == len(places) and not under_way and group.state is EMPTY
    if is_whole and group.pending_members:
        return
    *earlier, last = list(in_writes(expired)) or [()]
    for some in earlier:
        delete_offsets(coordinator, group, some, now_ms)
    delete = _delete_whole if is_whole else delete_offsets
    delete(coordinator, group, last, now_ms)
    coordinator.expired_offsets_total += len(expired)


def _is_expired(group: Group, place: Place, retention_ms: int, now_ms: int) -> bool:
    topic, committed = place[0], _at(group, place)
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms <= now_ms
    since_ms = committed.commit_timestamp_ms
    if group.protocol_type:
        if group.state is EMPTY:
            since_ms = max(since_ms, group.state_since_ms)
        elif not (group.is_consumer and group.state is STABLE) or group.reads(topic):
            return False
    return now_ms - since_ms >= retention_ms
