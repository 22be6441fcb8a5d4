"""CompactSegment: a step of segments that a compaction job makes. A request of Anabranch's own.

KIP: none
Versions: 0
Behaviour: taken by the partition's leader alone (NOT_LEADER_OR_FOLLOWER), whose epoch fences it. At
    the start the coordinator learns of a try, before the store does. SWAP makes all segments of a
    pass readable and removes those that they were made of, in one transaction; where one of these
    is not as it was, it changes nothing (FENCED_LEADER_EPOCH). A swap names each
    segment once. Steps that are repeated change nothing. Needs ALTER of the cluster.
Skipped: nothing
"""

from __future__ import annotations

from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.p10001_tier_segment import ENDED
from anabranch.core.api.tiering_answers import after_call, code_of, why_none
from anabranch.core.broker.gate import Need
from anabranch.core.diskless.rows import LogKey
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.metadata.image import PartitionImage, TopicImage
from anabranch.core.outcome import Outcome
from anabranch.core.remote.segments import (
    CUSTOM_METADATA_BYTES,
    EpochStart,
    RemoteSegment,
    SegmentId,
)
from anabranch.core.request import Request
from anabranch.core.tiering.compaction_claims import Swap
from anabranch.core.wire.messages.compact_segment import (
    STANDS,
    START,
    SWAP,
    CompactSegmentRequest,
    CompactSegmentResponse,
)


def run(broker: Broker, request: Request, _now_ms: int) -> Outcome:
    """Make the call of a step."""
    body: CompactSegmentRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.ALTER):
        return CompactSegmentResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if none := why_none(broker):
        return CompactSegmentResponse(error_code=none[0], error_message=none[1])
    topic = broker.image.topic_by_id(body.topic_id)
    partition = None if topic is None else topic.partitions.get(body.partition_index)
    if topic is None or partition is None or not is_diskless(broker.image, topic.name):
        return CompactSegmentResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader != broker.broker_id:
        return CompactSegmentResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if wrong := _wrong(body):
        return CompactSegmentResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wrong)
    call, arguments = _call(broker, body, topic, partition)
    told = CompactSegmentResponse(broker_id=broker.broker_id, leader_epoch=partition.leader_epoch)

    def ended(result: Any) -> CompactSegmentResponse:
        if isinstance(result, StorageFault):
            told.error_code, told.error_message = code_of(result), str(result)
        elif result is False:
            told.error_code, told.error_message = ErrorCode.FENCED_LEADER_EPOCH, ENDED
        return told

    return after_call(broker, call, arguments, ended)


def _wrong(body: CompactSegmentRequest) -> str:
    if body.step not in (START, STANDS, SWAP):
        return f"step {body.step} is unknown."
    if body.claim_id <= 0:
        return "A step needs a claim."
    if body.step == SWAP and not (body.swaps and all(each.replaced for each in body.swaps)):
        return "A swap needs segments, and for each of them those that it was made of."
    named = [one for each in body.swaps for one in (each.segment_id, *each.replaced)]
    if body.step == SWAP and len(named) != len(set(named)):
        return "A swap names each segment once."
    if body.step != START:
        return ""
    if not (0 <= body.start_offset < body.end_offset and body.byte_size > 0):
        return "A try needs offsets in order and a size."
    epochs = body.leader_epochs
    if not epochs or epochs[0].start_offset != body.start_offset:
        return "The leader epochs of a try must begin where it does."
    if len(body.metadata) > CUSTOM_METADATA_BYTES:
        return f"The metadata of a try has at most {CUSTOM_METADATA_BYTES} bytes."
    return ""


def _call(
    broker: Broker, body: CompactSegmentRequest, topic: TopicImage, partition: PartitionImage
) -> tuple[str, tuple[Any, ...]]:
    key = LogKey(body.topic_id, body.partition_index)
    if body.step == STANDS:
        return "compacted_stands", (body.claim_id, SegmentId(body.segment_id))
    if body.step == SWAP:
        swaps = tuple(
            Swap(SegmentId(each.segment_id), tuple(map(SegmentId, each.replaced)))
            for each in body.swaps
        )
        return "swap", (body.claim_id, key, partition.leader_epoch, swaps)
    segment = RemoteSegment(
        SegmentId(body.segment_id),
        key,
        body.start_offset,
        body.end_offset,
        body.max_timestamp,
        tuple(EpochStart(each.epoch, each.start_offset) for each in body.leader_epochs),
        body.byte_size,
        broker.broker_id,
        partition.leader_epoch,
        has_aborted=body.has_aborted,
        custom_metadata=bytes(body.metadata),
    )
    return "start_compacted", (body.claim_id, topic.name, segment)


HANDLER = Handler(
    api_key=10003,
    name="CompactSegment",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
