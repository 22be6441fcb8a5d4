"""What OffsetCommit and TxnOffsetCommit share: what can be committed, and their answers."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeAlias

from anabranch.core.access.authorize import Operation, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.in_flight import Place
from anabranch.core.coordination.groups.offsets import current_topic_id
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request

Commits: TypeAlias = list[tuple[Place, CommittedOffset]]

NONE = ErrorCode.NONE


def sorted_out(
    broker: Broker,
    request: Request,
    expires_ms: int,
    now_ms: int,
    topic_answer: type[Any],
    partition_answer: type[Any],
) -> tuple[list[Any], Commits]:
    """The answers for each topic if nothing else fails, and what can be committed."""
    commits: Commits = []
    longest = broker.config.offset_metadata_max_bytes
    topics = []
    for topic in request.body.topics:
        fault, existing = _topic_fault(broker, request, topic.name)
        topic_id = current_topic_id(broker.image, topic.name)
        answers = []
        for each in topic.partitions:
            index = each.partition_index
            metadata = each.committed_metadata or ""
            code = fault
            if code is not NONE:
                pass
            elif index not in existing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > longest:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offset, epoch = each.committed_offset, each.committed_leader_epoch
                committed = CommittedOffset(offset, epoch, metadata, now_ms, expires_ms, topic_id)
                commits.append(((topic.name, index), committed))
            answers.append(partition_answer(partition_index=index, error_code=code))
        topics.append(topic_answer(name=topic.name, partitions=answers))
    return topics, commits


def _topic_fault(broker: Broker, request: Request, topic: str) -> tuple[ErrorCode, Container[int]]:
    if not topic_allowed(broker.authorizer, request, Operation.READ, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ()
    known = broker.image.topic(topic)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ()
    return NONE, known.partitions


def fail(topics: list[Any], code: ErrorCode) -> None:
    """What would have been committed has this error instead."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code == NONE:
                partition.error_code = code


def refused(
    asked: list[Any], code: ErrorCode, topic_answer: type[Any], partition_answer: type[Any]
) -> list[Any]:
    """The answers when nothing may be committed."""
    return [
        topic_answer(
            name=topic.name,
            partitions=[
                partition_answer(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in asked
    ]
