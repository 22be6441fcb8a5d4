"""A simulated tiering job: a driver whose waves take the claim, and tasks that make segments.

What: a wave asks a broker for plans page by page, and makes a segment of each partition at once, as
tasks do: objects are read, the try is started at the leader, files are put, the leader finishes it.
Rule kept: nothing is decided here. Source: `pipelines/tiering.py`, `tiering_task.py`. Not here: how
drivers and tasks die (`job.py`), judgement (`checks/tiering.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from anabranch.core.diskless.keys import object_id
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.errors import StorageFault
from anabranch.core.log.segment import SNAPSHOT, offset_name
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.segments import SegmentId
from anabranch.core.tiering.built_segment import BuiltSegment, build
from anabranch.core.tiering.plan import PlannedSegment
from anabranch.core.tiering.tries import Call, PutFiles, one_try
from anabranch.core.types import ZERO_TOPIC_ID, Buffer, TopicId
from anabranch.core.wire.messages.plan_segments import (
    PlannedPartition,
    PlanSegmentsRequest,
    PlanSegmentsResponse,
)
from anabranch.core.wire.messages.tier_segment import TierSegmentRequest
from anabranch.sim.job import Calls, Job, nothing
from anabranch.sim.remote_logs import performed


class Planned(NamedTuple):
    """A wave's next segment of a partition."""

    claim_id: int
    cluster_id: str
    keys: Sequence[str]
    part: PlannedPartition

    @property
    def key(self) -> LogKey:
        """Of the partition."""
        return LogKey(self.part.topic_id, self.part.partition_index)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Its runs, in order."""
        return tuple(
            Run(
                self.key, each.base_offset, each.end_offset,
                object_id(self.keys[each.object_index]), self.keys[each.object_index],
                each.byte_offset, each.byte_size, each.max_timestamp, each.timestamp_type,
            )
            for each in self.part.runs
        )  # fmt: skip


class TieringJob(Job):
    """See the module."""

    family = "tiering"

    def _wave(self, number: int, claim_id: int) -> Calls:
        left: set[LogKey] = set()
        try:
            while True:
                found = yield from self._plan(claim_id)
                planned = [each for each in found if each.key not in left]
                if not planned:
                    return
                answers = yield self._all(number, [self._tier(each) for each in planned])
                for each, answer in zip(planned, answers, strict=True):
                    if isinstance(answer, StorageFault):
                        left.add(each.key)
        finally:
            self.ask(self.anybody(), PlanSegmentsRequest(claim_id=claim_id, is_done=True), nothing)

    def _plan(self, claim_id: int) -> Calls:
        found: list[Planned] = []
        topic_id, partition, is_last = ZERO_TOPIC_ID, -1, False
        while not is_last:
            answer: PlanSegmentsResponse = yield from self._asked(
                lambda: self.anybody(),
                PlanSegmentsRequest(
                    claim_id=claim_id, owner=self.name, after_topic_id=topic_id,
                    after_partition=partition,
                ),
            )  # fmt: skip
            found += (
                Planned(claim_id, answer.cluster_id, answer.object_keys, each)
                for each in answer.partitions
            )
            is_last = answer.is_last
            topic_id, partition = answer.last_topic_id, answer.last_partition
        return found

    def _tier(self, planned: Planned) -> Calls:
        built = yield from self._built(planned)
        steps = one_try(planned.cluster_id, planned.part.topic_name, built)
        yield from performed(steps, lambda step: self._step(planned, built, step))
        self.segments += 1

    def _step(self, planned: Planned, built: BuiltSegment, step: Any) -> Calls:
        match step:
            case Call(number):
                asked_ms = self.steady_ms
                answer = yield from self._tell(planned, built, number)
                return asked_ms, answer
            case PutFiles():
                yield from self._put_all(step, lambda each: self._tell(planned, built, each))
        return None

    def _built(self, planned: Planned) -> Calls:
        held: dict[str, Buffer] = {}
        for key in sorted({each.object_key for each in planned.runs}):
            (held[key],) = yield self._read(key)
        snapshot: Buffer = b""
        part = planned.part
        if part.before_segment_id:
            before = SegmentId(part.before_segment_id)
            folder = segment_folder(planned.cluster_id, planned.key, before)
            (snapshot,) = yield self._read(folder + offset_name(part.before_end_offset, SNAPSHOT))

        def bytes_of(run: Run) -> Buffer:
            return held[run.object_key][run.byte_offset : run.byte_offset + run.byte_size]

        segment_id = SegmentId(self.random.randbytes(16))
        wanted = PlannedSegment(part.start_offset, part.end_offset, planned.runs)
        return build(planned.key, segment_id, wanted, bytes_of, bytes(snapshot))

    def _tell(self, planned: Planned, built: BuiltSegment, step: int) -> Calls:
        segment = built.segment
        request = TierSegmentRequest(
            claim_id=planned.claim_id,
            step=step,
            topic_id=TopicId(planned.part.topic_id),
            partition_index=planned.part.partition_index,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp=segment.max_timestamp,
            byte_size=segment.byte_size,
        )
        answer = yield from self._at_leader(planned.part, request)
        return answer
