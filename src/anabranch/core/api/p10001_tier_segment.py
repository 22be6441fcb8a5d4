"""TierSegment: a step of a segment that a tiering job makes. A request of Anabranch's own.

KIP: none
Versions: 0
Behaviour: taken by the partition's leader alone (NOT_LEADER_OR_FOLLOWER), whose epoch fences it. At
    the start the coordinator learns of the try, before the store does; at the end the segment
    becomes readable, its rows are deleted and its objects released, in one transaction. A try that
    another job, or another segment in its place, has ended gets FENCED_LEADER_EPOCH, and what it
    has stored is removed; one whose segment the same job has made in a task that ran before gets
    DUPLICATE_RESOURCE. Steps that are repeated change nothing. Needs ALTER of the cluster.
Skipped: nothing
"""

from __future__ import annotations

from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.tiering_answers import after_call, code_of, why_none
from anabranch.core.broker.gate import Need
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.metadata.image import PartitionImage, TopicImage
from anabranch.core.outcome import Outcome
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.request import Request
from anabranch.core.wire.messages.tier_segment import (
    FINISH,
    STANDS,
    START,
    TierSegmentRequest,
    TierSegmentResponse,
)

ENDED = "The try was given up: another job has taken over, or its topic was deleted."


def run(broker: Broker, request: Request, _now_ms: int) -> Outcome:
    """Make the call of a step."""
    body: TierSegmentRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.ALTER):
        return TierSegmentResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if none := why_none(broker):
        return TierSegmentResponse(error_code=none[0], error_message=none[1])
    topic = broker.image.topic_by_id(body.topic_id)
    partition = None if topic is None else topic.partitions.get(body.partition_index)
    if topic is None or partition is None or not is_diskless(broker.image, topic.name):
        return TierSegmentResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader != broker.broker_id:
        return TierSegmentResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if wrong := _wrong(body):
        return TierSegmentResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wrong)
    call, arguments = _call(broker, body, topic, partition)
    told = TierSegmentResponse(broker_id=broker.broker_id, leader_epoch=partition.leader_epoch)

    def ended(result: Any) -> TierSegmentResponse:
        if isinstance(result, StorageFault):
            told.error_code, told.error_message = code_of(result), str(result)
        elif result is False:
            told.error_code, told.error_message = ErrorCode.FENCED_LEADER_EPOCH, ENDED
        elif isinstance(result, LogState):
            told.tiered_end_offset = result.tiered_end
        return told

    return after_call(broker, call, arguments, ended)


def _wrong(body: TierSegmentRequest) -> str:
    if body.step not in (START, STANDS, FINISH):
        return f"step {body.step} is unknown."
    if body.step == START and not (
        0 <= body.start_offset < body.end_offset and body.byte_size > 0 and body.claim_id > 0
    ):
        return "A try needs a claim, offsets in order and a size."
    return ""


def _call(
    broker: Broker, body: TierSegmentRequest, topic: TopicImage, partition: PartitionImage
) -> tuple[str, tuple[Any, ...]]:
    key = LogKey(body.topic_id, body.partition_index)
    segment_id = SegmentId(body.segment_id)
    if body.step == STANDS:
        return "stands", (body.claim_id, segment_id)
    if body.step == FINISH:
        return "finish", (key, partition.leader_epoch, segment_id)
    segment = RemoteSegment(
        segment_id,
        key,
        body.start_offset,
        body.end_offset,
        body.max_timestamp,
        (EpochStart(body.records_epoch, body.start_offset),),
        body.byte_size,
        broker.broker_id,
        partition.leader_epoch,
    )
    return "start", (body.claim_id, topic.name, segment)


HANDLER = Handler(
    api_key=10001,
    name="TierSegment",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
