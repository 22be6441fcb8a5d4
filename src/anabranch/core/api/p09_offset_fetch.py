"""OffsetFetch: the offsets that groups have committed.

KIP: KIP-709 (several groups at once), KIP-447 (stable offsets).
Versions: 1-9.
Behaviour: needs DESCRIBE on each group, then on each topic. No topic list means all offsets of the
    group. What many times is named twice is told once, else twice. A partition without an offset
    has -1, also one whose offset was committed for an earlier topic of that name; a group that does
    not exist has none. Errors of a group stand in the group (from version 8 on), or before in each
    partition and, from 2 on, in the answer; Kafka then names no partition, and readers that look at
    partitions alone begin anew. The answer waits until a record shows that this broker still
    coordinates the group (`Shard.prove`); NOT_COORDINATOR, with which every client looks for the
    coordinator again, when that is not shown within `offsets.commit.timeout.ms`, or when too few
    replicas are in sync to show it. With `require_stable` a partition of which an open transaction
    has committed an offset has UNSTABLE_OFFSET_COMMIT: the client asks again.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.in_flight import Place
from anabranch.core.coordination.groups.offsets import current_topic_id, is_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome, when_all
from anabranch.core.request import Request
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_SINCE = 8
TOP_LEVEL_ERROR_SINCE = 2
NO_OFFSET = CommittedOffset(-1)
MOST_REPEATS = 100
"""Partitions that a request may name twice, and have told twice."""

Offsets = Mapping[str, Mapping[int, CommittedOffset]]
Wanted = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None


class GroupOffsets(NamedTuple):
    """A group's offsets, and where an open transaction has committed one."""

    offsets: Offsets
    unstable: Collection[Place]


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait until it is proven that this broker coordinates each group."""
    body: OffsetFetchRequest = request.body
    if request.version >= GROUPS_SINCE:
        groups = _few_repeats(body.groups)

        def respond(found: list[GroupOffsets | ErrorCode]) -> OffsetFetchResponse:
            pairs = zip(groups, found, strict=True)
            return OffsetFetchResponse(groups=[_group(broker, request, *each) for each in pairs])

        parts = [_offsets(broker, request, each.group_id, now_ms) for each in groups]
        return when_all(parts, respond)
    topics: Wanted = body.topics
    if topics is not None:
        asked = [OffsetFetchRequestTopics(each.name, each.partition_indexes) for each in topics]
        topics = _few_repeats([OffsetFetchRequestGroup(topics=asked)])[0].topics
    part = _offsets(broker, request, body.group_id, now_ms)
    return when_all([part], lambda found: _one_group(broker, request, topics, *found))


def _few_repeats(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """The groups as they were asked for, as Kafka tells them; each with each of its partitions once
    where many are named twice: a few bytes of a request would bring kilobytes each, or all offsets
    of a group."""
    merged: dict[str, dict[str, dict[int, None]] | None] = {}
    repeats = 0
    for group in groups:
        known = merged.setdefault(group.group_id, {})
        if group.topics is None:
            repeats += MOST_REPEATS if known is None else 0
            merged[group.group_id] = None
            continue
        for topic in group.topics:
            repeats += len(topic.partition_indexes)
            if known is not None:
                partitions = known.setdefault(topic.name, {})
                before = len(partitions)
                partitions.update(dict.fromkeys(topic.partition_indexes))
                repeats -= len(partitions) - before
    if repeats < MOST_REPEATS:
        return groups
    return [
        OffsetFetchRequestGroup(group_id=group_id, topics=_topics(topics))
        for group_id, topics in merged.items()
    ]


def _topics(topics: dict[str, dict[int, None]] | None) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))
        for name, partitions in topics.items()
    ]


def _one_group(
    broker: Broker, request: Request, wanted: Wanted, found: GroupOffsets | ErrorCode
) -> OffsetFetchResponse:
    body: OffsetFetchRequest = request.body
    if isinstance(found, ErrorCode):
        return _failed(body, request.version, found)
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=code,
                )
                for index, each, code in partitions
            ],
        )
        for name, partitions in _found(broker, request, found, wanted)
    ]
    return OffsetFetchResponse(topics=topics)


def _group(
    broker: Broker,
    request: Request,
    wanted: OffsetFetchRequestGroup,
    found: GroupOffsets | ErrorCode,
) -> OffsetFetchResponseGroup:
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=found)
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=code,
                )
                for index, each, code in partitions
            ],
        )
        for name, partitions in _found(broker, request, found, wanted.topics)
    ]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


def _offsets(broker: Broker, request: Request, group_id: str, now_ms: int) -> Any:
    """The group's offsets, the code that says why they are not told, or a Wait for either."""
    if not group_allowed(broker, request, Operation.DESCRIBE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    done = broker.groups.answer()
    try:
        shard = broker.groups.shard_of(group_id, now_ms)
    except ApiError as error:
        return error.code
    shard.prove(done, now_ms)

    def tell(code: ErrorCode) -> GroupOffsets | ErrorCode:
        if code is not ErrorCode.NONE or not shard.is_current:
            return ErrorCode.NOT_COORDINATOR
        group = broker.groups.groups.get(group_id)
        unstable = shard.undecided.of(group_id) if request.body.require_stable else ()
        return GroupOffsets({} if group is None else group.offsets, unstable)

    return when_committed(broker, shard, done, now_ms, tell)


def _found(
    broker: Broker, request: Request, known: GroupOffsets, wanted: Wanted
) -> Iterable[tuple[str, list[tuple[int, CommittedOffset, ErrorCode]]]]:
    """(topic, its partitions with their offset and error), in the order asked for."""
    image, unstable = broker.image, known.unstable
    if wanted is None:
        for name, partitions in known.offsets.items():
            if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
                topic_id = current_topic_id(image, name)
                told = [
                    _told((name, index), each, topic_id, unstable)
                    for index, each in partitions.items()
                    if is_of(topic_id, each)
                ]
                if told:
                    yield name, told
        return
    for topic in wanted:
        name, indexes = topic.name, topic.partition_indexes
        if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
            there, topic_id = known.offsets.get(name, {}), current_topic_id(image, name)
            yield name, [_told((name, i), there.get(i), topic_id, unstable) for i in indexes]
        else:
            yield name, [(i, NO_OFFSET, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for i in indexes]


def _told(
    place: Place,
    committed: CommittedOffset | None,
    topic_id: TopicId,
    unstable: Collection[Place],
) -> tuple[int, CommittedOffset, ErrorCode]:
    if unstable and place in unstable:
        return place[1], NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT
    if committed is None or not is_of(topic_id, committed):
        return place[1], NO_OFFSET, ErrorCode.NONE
    return place[1], committed, ErrorCode.NONE


def _failed(body: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=code if version >= TOP_LEVEL_ERROR_SINCE else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ],
    )


HANDLER = Handler(
    api_key=9,
    name="OffsetFetch",
    versions=range(1, 10),
    broker=run,
    needs=(
        Need(Operation.DESCRIBE, ResourceType.GROUP),
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    kips=("KIP-447", "KIP-709"),
)
