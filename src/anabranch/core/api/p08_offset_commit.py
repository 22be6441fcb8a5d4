"""OffsetCommit: a group, or a client with its id, stores how far it has read.

KIP: KIP-211 (expiry), KIP-320 (leader epochs), KIP-345 (static members).
Versions: 2-9.
Behaviour: needs READ on the group, then READ on each topic. A partition that does not exist is
    refused by itself; so is metadata longer than `offset.metadata.max.bytes`. What is left is
    written as one batch and acknowledged when it is committed, within `offsets.commit.timeout.ms`;
    NOT_COORDINATOR at once if the group moves to another coordinator. A member's commit counts as
    its heartbeat. Without a generation, only an empty group takes it.
Skipped: members of KIP-848 groups.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.api.offset_commits import NONE, fail, refused, sorted_out
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

ANSWERS = OffsetCommitResponseTopic, OffsetCommitResponsePartition
NOT_FOUND_SINCE = 9
LATEST_MS = 2**63 - 1
"""The last time that a record can name: an offset that is kept longer is kept for good."""


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the records to be committed."""
    body: OffsetCommitRequest = request.body
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=refused(body.topics, code, *ANSWERS))
    expires_ms = -1
    if body.retention_time_ms >= 0:
        expires_ms = min(now_ms + body.retention_time_ms, LATEST_MS)
    topics, commits = sorted_out(broker, request, expires_ms, now_ms, *ANSWERS)
    response = OffsetCommitResponse(topics=topics)
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


def _in_version(code: ErrorCode, version: int) -> ErrorCode:
    """Older clients know GROUP_ID_NOT_FOUND only from administration."""
    if code is ErrorCode.GROUP_ID_NOT_FOUND and version < NOT_FOUND_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _failed(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    fail(response.topics, code)
    return response


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
    skipped=("Members of KIP-848 groups cannot commit.",),
)
