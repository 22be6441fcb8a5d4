"""TxnOffsetCommit: a transaction stores how far a group has read, to count if it is committed.

KIP: KIP-98, KIP-447 (which member commits), KIP-890 (the transaction is verified, or joined).
Versions: 0-5.
Behaviour: needs WRITE on the transactional id, READ on the group, then READ on each topic. The
    transaction's coordinator must know that the group takes part, as of any partition; from version
    5 on the group joins by itself. A client that names a generation or a member id must be that
    member. What is written is answered when it is committed, within `offsets.commit.timeout.ms`;
    OffsetFetch tells it once the transaction is committed.
Skipped: members of KIP-848 groups.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.context import Broker
from anabranch.core.api.groups import group_allowed, when_committed
from anabranch.core.api.handler import Handler
from anabranch.core.api.offset_commits import NONE, Commits, fail, refused, sorted_out
from anabranch.core.api.transactions import note_refusal
from anabranch.core.broker.gate import Need
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.transactions.verification import (
    VERIFY_MS,
    TransactionSupport,
    Verification,
)
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ANSWERS = TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
LOADING_SINCE = 2
"""Older producers take COORDINATOR_LOAD_IN_PROGRESS for the end."""
ABORTABLE_SINCE = 4
ADDS_SINCE = 5


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """The answer, or a wait for the coordinator's word or for the records to be committed."""
    body: TxnOffsetCommitRequest = request.body
    refusal = _refusal(broker, request)
    if refusal is not None:
        return TxnOffsetCommitResponse(topics=refused(body.topics, refusal, *ANSWERS))
    topics, commits = sorted_out(broker, request, -1, now_ms, *ANSWERS)
    response = TxnOffsetCommitResponse(topics=topics)
    if not commits:
        return response
    if not body.group_id:
        return _failed(response, request, ErrorCode.INVALID_GROUP_ID)
    try:
        verification = _unverified(broker, request, now_ms)
    except ApiError as error:
        return _refused(broker, response, request, error.code)
    if verification is None:
        return _commit(broker, request, response, commits, None, now_ms)

    def poll(now_ms: int, expired: bool) -> Outcome | None:
        if verification.code is None and not expired:
            return None
        return _commit(broker, request, response, commits, verification, now_ms)

    return Wait((verification,), now_ms + VERIFY_MS, poll)


def _refusal(broker: Broker, request: Request) -> ErrorCode | None:
    body: TxnOffsetCommitRequest = request.body
    authorizer = broker.authorizer
    if not authorizer.allows_all and not authorizer.authorize(
        request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not group_allowed(broker, request, Operation.READ, body.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _unverified(broker: Broker, request: Request, now_ms: int) -> Verification | None:
    """What the commit must wait for, if anything. Raises ApiError."""
    body: TxnOffsetCommitRequest = request.body
    replica = broker.groups.shard_of(body.group_id, now_ms).replica
    support = TransactionSupport(request.version >= ADDS_SINCE, request.version >= ABORTABLE_SINCE)
    producer = body.producer_id, body.producer_epoch
    return broker.verifier.needed(replica, body.transactional_id, *producer, support)


def _commit(
    broker: Broker,
    request: Request,
    response: TxnOffsetCommitResponse,
    commits: Commits,
    verification: Verification | None,
    now_ms: int,
) -> Outcome:
    """Write the offsets; the group is looked at as it is now."""
    body: TxnOffsetCommitRequest = request.body
    done = broker.groups.answer()
    try:
        if verification is not None:
            verification.check(broker.groups.shard_of(body.group_id, now_ms).replica)
        group = offsets.transactions_group(
            broker.groups,
            body.group_id,
            body.generation_id,
            body.member_id,
            body.group_instance_id,
            now_ms,
        )
        producer = body.producer_id, body.producer_epoch
        offsets.commit_in_transaction(broker.groups, group, commits, producer, done, now_ms)
    except ApiError as error:
        return _refused(broker, response, request, error.code)

    def tell(code: ErrorCode) -> TxnOffsetCommitResponse:
        return response if code is NONE else _failed(response, request, code)

    return when_committed(broker, group.shard, done, now_ms, tell)


def _refused(
    broker: Broker, response: TxnOffsetCommitResponse, request: Request, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """As `_failed`, and the log names a producer that is not the one it should be."""
    note_refusal(broker, request, "TxnOffsetCommit", code, request.body.transactional_id)
    return _failed(response, request, code)


def _failed(
    response: TxnOffsetCommitResponse, request: Request, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """What would have been committed has an error, as the client's version knows it."""
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:  # of a verification: it passes
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        code = ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < LOADING_SINCE:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    fail(response.topics, code)
    return response


HANDLER = Handler(
    api_key=28,
    name="TxnOffsetCommit",
    versions=range(6),
    broker=run,
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.READ, ResourceType.GROUP),
        Need(Operation.READ, ResourceType.TOPIC),
    ),
    kips=("KIP-98", "KIP-447", "KIP-890"),
    skipped=("Members of KIP-848 groups cannot commit.",),
)
