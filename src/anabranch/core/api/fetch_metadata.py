"""Fetch of `__cluster_metadata` from the active controller: how every node follows the decisions.

KIP: KIP-595 (diverging epoch), KIP-630 (snapshots), KIP-516 (topic id)
Behaviour: only committed batches are served. A fetch from behind the log's start names the snapshot
    to load. A fetch whose last epoch does not fit, or that lies beyond the end, gets the diverging
    epoch: since followers hold committed records alone, it tells them that the store went back. So
    it is not told before the store has confirmed the lease: another controller may have taken it.
    A request with another cluster's id is refused, so two clusters are never taken for one.
Not here: voters that replicate from each other; the store is the commit point.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.controller.controller import METADATA_KEY, Controller
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Outcome, Wait
from anabranch.core.request import Request
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

MOST_BYTES = 8 * 1024 * 1024
"""Largest answer, whatever the follower allows: it is built in memory."""


def fetch_metadata(controller: Controller, request: Request, now_ms: int) -> Outcome:
    """The controller listener's half of Fetch."""
    body: FetchRequest = request.body
    if body.cluster_id is not None and body.cluster_id != controller.cluster_id:
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = _wanted(body)
    if wanted is None:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = _answer(controller, wanted)
    if not answer.error_code and not _is_news(answer):
        reader = max(body.replica_id, body.replica_state.replica_id)
        controller.has_read(reader, wanted.fetch_offset)
    if body.max_wait_ms <= 0 or _is_due(controller, answer):
        return _response(answer)

    def poll(_now_ms: int, expired: bool) -> FetchResponse | None:
        later = _answer(controller, wanted)
        if expired or _is_due(controller, later):
            return _response(later)
        return None

    return Wait((METADATA_KEY,), now_ms + body.max_wait_ms, poll, MOST_BYTES)


def _wanted(body: FetchRequest) -> FetchPartition | None:
    for topic in body.topics:
        if topic.topic == CLUSTER_METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID:
            for partition in topic.partitions:
                if partition.partition == 0:
                    return partition
    return None


def _is_due(controller: Controller, answer: PartitionData) -> bool:
    """Whether an answer need not wait."""
    if controller.active and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return False  # it depends on whether the store confirms the lease
    return bool(answer.error_code or answer.records) or _is_news(answer)


def _is_news(answer: PartitionData) -> bool:
    return answer.snapshot_id.end_offset >= 0 or answer.diverging_epoch.epoch >= 0


def _answer(controller: Controller, wanted: FetchPartition) -> PartitionData:
    """What can be said now; the controller is told when somebody has seen more than it has."""
    log = controller.log
    answer = PartitionData(
        partition_index=0,
        high_watermark=log.end_offset,
        last_stable_offset=log.end_offset,
        log_start_offset=log.start_offset,
        current_leader=LeaderIdAndEpoch(
            leader_id=controller.node_id if controller.active else -1,
            leader_epoch=controller.epoch,
        ),
        aborted_transactions=None,
        records=b"",
    )
    if not controller.active:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer
    if 0 <= wanted.current_leader_epoch != controller.epoch:
        older = wanted.current_leader_epoch < controller.epoch
        answer.error_code = (
            ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        return answer
    if wanted.fetch_offset < log.start_offset and log.snapshot is not None:
        answer.snapshot_id = SnapshotId(
            end_offset=log.snapshot.end_offset, epoch=log.snapshot.epoch
        )
        return answer
    diverging = _diverging(controller, wanted)
    if not controller.is_doubt_settled and (diverging or _compares_beyond(controller, wanted)):
        controller.is_doubted = True
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer
    if diverging is not None:
        answer.diverging_epoch = diverging
        return answer
    limit = min(wanted.partition_max_bytes or MOST_BYTES, MOST_BYTES)
    answer.records = log.read(wanted.fetch_offset, limit) or b""
    return answer


def _compares_beyond(controller: Controller, wanted: FetchPartition) -> bool:
    """Whether a follower asks for its last batch, to compare it, and that is not here: it says no
    epoch then."""
    return wanted.last_fetched_epoch < 0 < wanted.fetch_offset == controller.log.end_offset


def _diverging(controller: Controller, wanted: FetchPartition) -> EpochEndOffset | None:
    log = controller.log
    epoch, end_offset = log.last_epoch, log.end_offset
    if wanted.last_fetched_epoch >= 0:
        epoch, end_offset = log.epoch_end(wanted.last_fetched_epoch)
        behind_the_log = wanted.fetch_offset <= log.start_offset
        if epoch != wanted.last_fetched_epoch and not behind_the_log:
            return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if wanted.fetch_offset > end_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _response(answer: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(
        topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[answer]
    )
    return FetchResponse(responses=[topic])
