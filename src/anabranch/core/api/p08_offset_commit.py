"""OffsetCommit: a group, or whoever uses its name, stores how far it has read.

KIP: KIP-211 (expiry), KIP-320 (leader epochs), KIP-345 (static members).
Versions: 2-9.
Behaviour: needs READ on the group, then READ on each topic. A partition that does not exist is
    refused by itself; so is metadata longer than `offset.metadata.max.bytes`. What is left is
    written as one batch and acknowledged when it is committed, within `offsets.commit.timeout.ms`;
    NOT_COORDINATOR at once when the group moves away meanwhile.
    A member's commit counts as its heartbeat. Without a generation, only an empty group takes it.
Skipped: members of KIP-848 groups.
"""

from __future__ import annotations

from collections.abc import Container

from anabranch.core.access.authorize import Operation, ResourceType, topic_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups import offsets
from anabranch.core.groups.group import CommittedOffset
from anabranch.core.groups.in_flight import Place
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

Commits = list[tuple[Place, CommittedOffset]]

NONE = ErrorCode.NONE
NOT_FOUND_SINCE = 9
LATEST_MS = 2**63 - 1
"""The last time that a record can name: an offset that is kept longer is kept for good."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the records to be committed."""
    body: OffsetCommitRequest = request.body
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        return _refused(body, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response, commits = _sorted_out(broker, request, now_ms)
    if not commits:
        return response
    done = broker.groups.answer()
    try:
        group = offsets.committing_group(
            broker.groups,
            body.group_id,
            body.generation_id_or_member_epoch,
            body.member_id,
            body.group_instance_id,
            now_ms,
        )
        offsets.commit(broker.groups, group, commits, done, now_ms)
    except ApiError as error:
        return _failed(response, _in_version(error.code, request.version))

    def tell(code: ErrorCode) -> OffsetCommitResponse:
        return response if code is NONE else _failed(response, code)

    return when_committed(broker, group.shard, done, now_ms, tell)


def _sorted_out(
    broker: Broker, request: Request, now_ms: int
) -> tuple[OffsetCommitResponse, Commits]:
    """The answer as it is if nothing else fails, and what can be committed."""
    body: OffsetCommitRequest = request.body
    commits: Commits = []
    expires_ms = -1
    if body.retention_time_ms >= 0:
        expires_ms = min(now_ms + body.retention_time_ms, LATEST_MS)
    longest = broker.config.offset_metadata_max_bytes
    topics = []
    for topic in body.topics:
        fault, existing = _topic_fault(broker, request, topic)
        topic_id = offsets.current_topic_id(broker.image, topic.name)
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
            answers.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics), commits


def _topic_fault(
    broker: Broker, request: Request, topic: OffsetCommitRequestTopic
) -> tuple[ErrorCode, Container[int]]:
    if not topic_allowed(broker.authorizer, request, Operation.READ, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ()
    known = broker.image.topic(topic.name)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ()
    return NONE, known.partitions


def _in_version(code: ErrorCode, version: int) -> ErrorCode:
    """Older clients know GROUP_ID_NOT_FOUND only from administration."""
    if code is ErrorCode.GROUP_ID_NOT_FOUND and version < NOT_FOUND_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _failed(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    """What would have been committed has this error instead."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:
                partition.error_code = code
    return response


def _refused(body: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


HANDLER = Handler(
    api_key=8,
    name="OffsetCommit",
    versions=range(2, 10),
    broker=run,
    needs=(
        Need(Operation.READ, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
    kips=("KIP-211", "KIP-320", "KIP-345"),
    skipped=("Members of KIP-848 groups do not commit.",),
)
