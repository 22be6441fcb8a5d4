"""PlanCompaction: what a compaction job may do next. A request of Anabranch's own.

KIP: none
Versions: 0
Behaviour: takes or renews the claim of the job that asks, or lets it go, which gives up its tries.
    Answers with partitions of compacted diskless topics, in the order of topic id and partition,
    from the one after the given one on: how much of each is tiered and dirty, and, if the topic's
    settings want a pass now, its segments. `is_last` says that no partition comes after these. LOOK
    takes no claim. Another job that is at work gives CONCURRENT_TRANSACTIONS. Needs ALTER of the
    cluster.
Skipped: nothing
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.api.tiering_answers import after_call, code_of, why_none
from anabranch.core.broker.gate import Need
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.outcome import Outcome
from anabranch.core.remote.segments import RemoteSegment
from anabranch.core.request import Request
from anabranch.core.tiering.compactable import compactable_after
from anabranch.core.tiering.compaction_plan import Compactable, Tiered, is_worth_it, next_pass
from anabranch.core.wire.messages.plan_compaction import (
    LOOK,
    RELEASE,
    RENEW,
    EpochOf,
    PartitionToCompact,
    PlanCompactionRequest,
    PlanCompactionResponse,
    SegmentToCompact,
)

PARTITIONS_AT_ONCE = 100
"""That one answer looks at."""


def run(broker: Broker, request: Request, _now_ms: int) -> Outcome:
    """Take, renew or release the claim, then plan."""
    body: PlanCompactionRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.ALTER):
        return PlanCompactionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if none := why_none(broker):
        return PlanCompactionResponse(error_code=none[0], error_message=none[1])
    if body.ask == LOOK:
        return _plan(broker, body, "")
    if body.claim_id <= 0:
        why = "claim_id must be a random number greater than 0."
        return PlanCompactionResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if body.ask == RELEASE:
        return after_call(broker, "release_compaction", (body.claim_id,), _released)
    brokers = tuple(sorted(broker.image.brokers))

    def claimed(store_id: str | StorageFault) -> Outcome:
        if isinstance(store_id, StorageFault):
            return _refused(store_id)
        if body.ask == RENEW:
            return PlanCompactionResponse()
        return _plan(broker, body, store_id)

    return after_call(broker, "claim_compaction", (body.claim_id, body.owner, brokers), claimed)


def _released(result: Any) -> PlanCompactionResponse:
    return _refused(result) if isinstance(result, StorageFault) else PlanCompactionResponse()


def _refused(fault: StorageFault) -> PlanCompactionResponse:
    return PlanCompactionResponse(error_code=code_of(fault), error_message=str(fault))


def _plan(broker: Broker, body: PlanCompactionRequest, store_id: str) -> Outcome:
    after = LogKey(body.after_topic_id, body.after_partition)
    found = compactable_after(broker.image, broker.config, after)
    wanted = tuple(islice(found, PARTITIONS_AT_ONCE))
    response = PlanCompactionResponse(cluster_id=broker.cluster_id, store_id=store_id)
    if not wanted:
        return response
    response.is_last = len(wanted) < PARTITIONS_AT_ONCE
    response.last_topic_id, response.last_partition = wanted[-1].key

    def planned(tiered: list[Tiered | None] | StorageFault) -> PlanCompactionResponse:
        if isinstance(tiered, StorageFault):
            return _refused(tiered)
        for each, held in zip(wanted, tiered, strict=True):
            part = None if held is None else _partition(broker, each, held)
            if part is not None:
                response.partitions.append(part)
        return response

    return after_call(broker, "tiered", (tuple(each.key for each in wanted),), planned)


def _partition(broker: Broker, wanted: Compactable, held: Tiered) -> PartitionToCompact | None:
    """What can be done to a partition; None where no broker leads it."""
    topic = broker.image.topic_by_id(wanted.key.topic_id)
    leader = None if topic is None else topic.partitions.get(wanted.key.partition)
    if topic is None or leader is None or leader.leader < 0:
        return None
    found, state = next_pass(held, wanted), held.state
    part = PartitionToCompact(
        topic_id=topic.topic_id,
        topic_name=topic.name,
        partition_index=wanted.key.partition,
        leader_id=leader.leader,
        tiered_bytes=found.clean_bytes + found.dirty_bytes,
        dirty_bytes=found.dirty_bytes,
        untiered_records=state.high_watermark - state.first_run_offset,
        now_ms=held.now_ms,
        delete_retention_ms=wanted.delete_retention_ms,
        most_bytes=wanted.most_bytes,
        generation=found.mark.generation,
        upto=found.mark.upto,
        forgets=found.forgets,
    )
    if is_worth_it(found, wanted):
        part.segments = list(map(_segment, found.segments))
    return part


def _segment(segment: RemoteSegment) -> SegmentToCompact:
    return SegmentToCompact(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        byte_size=segment.byte_size,
        has_aborted=segment.has_aborted,
        leader_epochs=[
            EpochOf(epoch=each.epoch, start_offset=each.start_offset)
            for each in segment.leader_epochs
        ],
    )


HANDLER = Handler(
    api_key=10002,
    name="PlanCompaction",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
