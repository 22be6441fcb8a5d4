"""PlanSegments: what a tiering job may do next. A request of Anabranch's own.

KIP: none
Versions: 0
Behaviour: takes or renews the claim of the job that asks, on all that was committed before, or lets
    it go (`is_done`). Answers with the next segments of some partitions, in the order of topic id
    and partition, from the one after the given one on: at most one segment a partition, with the
    runs that it is made of. `is_last` says that no partition comes after these. Each topic's
    diskless.tiering.age.ms and diskless.tiering.min.segment.bytes count. Another job that is at
    work gives CONCURRENT_TRANSACTIONS. Needs ALTER of the cluster.
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
from anabranch.core.request import Request
from anabranch.core.tiering.claims import Aged, Claim
from anabranch.core.tiering.eligible import eligible_after
from anabranch.core.tiering.plan import Eligible, PlannedSegment, next_segment
from anabranch.core.wire.messages.plan_segments import (
    PlannedPartition,
    PlannedRun,
    PlanSegmentsRequest,
    PlanSegmentsResponse,
)

PARTITIONS_AT_ONCE = 20
"""That one answer looks at: with 5,000 rows each, some hundred milliseconds of the coordinator."""


def run(broker: Broker, request: Request, _now_ms: int) -> Outcome:
    """Take or renew the claim, then plan."""
    body: PlanSegmentsRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.ALTER):
        return PlanSegmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if none := why_none(broker):
        return PlanSegmentsResponse(error_code=none[0], error_message=none[1])
    if body.claim_id <= 0:
        why = "claim_id must be a random number greater than 0."
        return PlanSegmentsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if body.is_done:
        return after_call(broker, "release", (body.claim_id,), _released)
    brokers = tuple(sorted(broker.image.brokers))

    def claimed(claim: Claim | StorageFault) -> Outcome:
        if isinstance(claim, StorageFault):
            return _refused(claim)
        return _plan(broker, body, claim)

    return after_call(broker, "claim", (body.claim_id, body.owner, brokers), claimed)


def _released(result: Any) -> PlanSegmentsResponse:
    return _refused(result) if isinstance(result, StorageFault) else PlanSegmentsResponse()


def _refused(fault: StorageFault) -> PlanSegmentsResponse:
    return PlanSegmentsResponse(error_code=code_of(fault), error_message=str(fault))


def _plan(broker: Broker, body: PlanSegmentsRequest, claim: Claim) -> Outcome:
    after = LogKey(body.after_topic_id, body.after_partition)
    found = eligible_after(broker.image, broker.config, after)
    wanted = tuple(islice(found, PARTITIONS_AT_ONCE))
    response = PlanSegmentsResponse(
        cluster_id=broker.cluster_id, store_id=claim.store_id, commit_number=claim.commit_number
    )
    if not wanted:
        return response
    response.is_last = len(wanted) < PARTITIONS_AT_ONCE
    response.last_topic_id, response.last_partition = wanted[-1].key

    def planned(aged: list[Aged | None] | StorageFault) -> PlanSegmentsResponse:
        if isinstance(aged, StorageFault):
            return _refused(aged)
        indexes: dict[str, int] = {}
        for each, held in zip(wanted, aged, strict=True):
            part = None if held is None else _partition(broker, each, held, indexes)
            if part is not None:
                response.partitions.append(part)
        response.object_keys = list(indexes)
        return response

    return after_call(broker, "aged", (body.claim_id, wanted), planned)


def _partition(
    broker: Broker, wanted: Eligible, held: Aged, indexes: dict[str, int]
) -> PlannedPartition | None:
    """A partition's next segment; None while there is none, or nobody leads it."""
    topic = broker.image.topic_by_id(wanted.key.topic_id)
    leader = None if topic is None else topic.partitions.get(wanted.key.partition)
    planned = next_segment(held.state, held.runs, wanted, held.now_ms)
    if topic is None or leader is None or leader.leader < 0 or planned is None:
        return None
    part = PlannedPartition(
        topic_id=topic.topic_id,
        topic_name=topic.name,
        partition_index=wanted.key.partition,
        leader_id=leader.leader,
        start_offset=planned.start_offset,
        end_offset=planned.end_offset,
        runs=_runs(planned, indexes),
        records_epoch=held.state.leader_epoch,
    )
    if held.before is not None:
        part.before_segment_id = held.before.segment_id
        part.before_start_offset = held.before.start_offset
        part.before_end_offset = held.before.end_offset
    return part


def _runs(planned: PlannedSegment, indexes: dict[str, int]) -> list[PlannedRun]:
    return [
        PlannedRun(
            object_index=indexes.setdefault(run.object_key, len(indexes)),
            base_offset=run.base_offset,
            end_offset=run.end_offset,
            byte_offset=run.byte_offset,
            byte_size=run.byte_size,
            max_timestamp=run.max_timestamp,
            timestamp_type=run.timestamp_type,
        )
        for run in planned.runs
    ]


HANDLER = Handler(
    api_key=10000,
    name="PlanSegments",
    versions=range(1),
    broker=run,
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
