"""OffsetFetch: the offsets that groups have committed.

KIP: KIP-709 (several groups at once), KIP-447 (stable offsets).
Versions: 1-9.
Behaviour: needs DESCRIBE on each group, then on each topic. No topic list means all offsets of the
    group. A partition without an offset has -1; a group that does not exist has none. Errors of a
    group stand in the answer (versions 2 to 7), in the group (8 on), or in each partition (1).
    COORDINATOR_LOAD_IN_PROGRESS until what a new coordinator has read is committed.
Skipped: waiting for open transactions (`require_stable`): no transaction commits offsets here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.core.access.authorize import Operation, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed
from anabranch.core.api.handler import Handler, Request
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups.group import CommittedOffset
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

Offsets = Mapping[str, Mapping[int, CommittedOffset]]
Wanted = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None


def run(broker: Broker, request: Request, now_ms: int) -> OffsetFetchResponse:
    """The answer, always at once."""
    body: OffsetFetchRequest = request.body
    if request.version >= GROUPS_SINCE:
        groups = [_group(broker, request, wanted, now_ms) for wanted in body.groups]
        return OffsetFetchResponse(groups=groups)
    try:
        offsets = _offsets(broker, request, body.group_id, now_ms)
    except ApiError as error:
        return _failed(body, request.version, error.code)
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=code,
                )
                for index, found, code in partitions
            ],
        )
        for name, partitions in _found(broker, request, offsets, body.topics)
    ]
    return OffsetFetchResponse(topics=topics)


def _group(
    broker: Broker, request: Request, wanted: OffsetFetchRequestGroup, now_ms: int
) -> OffsetFetchResponseGroup:
    try:
        offsets = _offsets(broker, request, wanted.group_id, now_ms)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code)
    topics = [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=code,
                )
                for index, found, code in partitions
            ],
        )
        for name, partitions in _found(broker, request, offsets, wanted.topics)
    ]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics)


def _offsets(broker: Broker, request: Request, group_id: str, now_ms: int) -> Offsets:
    if not group_allowed(broker, request, Operation.DESCRIBE, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not broker.groups.shard_of(group_id, now_ms).is_settled:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    group = broker.groups.find(group_id, now_ms)
    return {} if group is None else group.offsets


def _found(
    broker: Broker, request: Request, offsets: Offsets, wanted: Wanted
) -> Iterable[tuple[str, list[tuple[int, CommittedOffset, ErrorCode]]]]:
    """(topic, its partitions with their offset and error), in the order asked for."""
    if wanted is None:
        for name, partitions in offsets.items():
            if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
                yield name, [(i, each, ErrorCode.NONE) for i, each in partitions.items()]
        return
    for topic in wanted:
        name, indexes = topic.name, topic.partition_indexes
        if topic_allowed(broker.authorizer, request, Operation.DESCRIBE, name):
            known = offsets.get(name, {})
            yield name, [(i, known.get(i, NO_OFFSET), ErrorCode.NONE) for i in indexes]
        else:
            yield name, [(i, NO_OFFSET, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for i in indexes]


def _failed(body: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    if version >= TOP_LEVEL_ERROR_SINCE:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
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
        ]
    )


HANDLER = Handler(
    api_key=9,
    name="OffsetFetch",
    versions=range(1, 10),
    broker=run,
    kips=("KIP-709",),
    skipped=("With `require_stable` nothing waits: transactions do not commit offsets.",),
)
