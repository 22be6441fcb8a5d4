"""FetchSnapshot: a node that is far behind loads the metadata snapshot in pieces.

KIP: KIP-630, KIP-853 (version 1)
Versions: 0-1
Behaviour: bytes of the one snapshot that the active controller keeps, from a position on. Another
    snapshot is SNAPSHOT_NOT_FOUND: the follower then fetches again and learns the newer one.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, always
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.errors import ErrorCode
from anabranch.core.request import Request
from anabranch.core.types import CLUSTER_METADATA_TOPIC
from anabranch.core.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
    LeaderIdAndEpoch,
    SnapshotId,
)


def decide(controller: Controller, request: Request, _now_ms: int) -> FetchSnapshotResponse:
    """A piece of the snapshot."""
    body: FetchSnapshotRequest = request.body
    if body.cluster_id is not None and body.cluster_id != controller.cluster_id:
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        return FetchSnapshotResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = [
        FetchSnapshotResponseTopicSnapshot(
            name=topic.name,
            partitions=[
                _piece(controller, topic.name, partition, body.max_bytes)
                for partition in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return FetchSnapshotResponse(topics=topics)


def _piece(
    controller: Controller,
    topic: str,
    wanted: FetchSnapshotRequestPartitionSnapshot,
    max_bytes: int,
) -> FetchSnapshotResponsePartitionSnapshot:
    answer = FetchSnapshotResponsePartitionSnapshot(
        index=wanted.partition,
        current_leader=LeaderIdAndEpoch(
            leader_id=controller.node_id, leader_epoch=controller.epoch
        ),
    )
    snapshot = controller.log.snapshot
    asked = (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
    if topic != CLUSTER_METADATA_TOPIC or wanted.partition != 0:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif snapshot is None or asked != (snapshot.end_offset, snapshot.epoch):
        answer.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
    elif not 0 <= wanted.position < len(snapshot.payload):
        answer.error_code = ErrorCode.POSITION_OUT_OF_RANGE
    else:
        end = wanted.position + max(max_bytes, 0)
        answer.snapshot_id = SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        answer.size = len(snapshot.payload)
        answer.position = wanted.position
        answer.unaligned_records = memoryview(snapshot.payload)[wanted.position : end]
    return answer


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> FetchSnapshotResponse:
    """An answer with the error alone."""
    return FetchSnapshotResponse(error_code=code)


HANDLER = Handler(
    api_key=59,
    name="FetchSnapshot",
    versions=range(2),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    of_broker=always,
    kips=("KIP-630", "KIP-853"),
)
