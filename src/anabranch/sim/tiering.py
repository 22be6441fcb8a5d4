"""A simulated tiering job: a driver whose waves take the claim, and tasks that make segments.

What: each wave has a claim of its own, asks a broker for plans page by page, and makes a segment of
each partition at once, as tasks do: objects are read, the try is started at the leader, files are
put, the leader finishes it. A driver may die at any moment, and a task at any call: what it had put
stays, and the next wave, of this job or another one, goes on. The steady clock that leases of tries
are measured with goes as fast as that of brokers (`remote_logs.py`). Rule kept: nothing is decided
here. Source: `pipelines/tiering.py`, `tiering_task.py`. Not here: judgement (`checks/tiering.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.diskless.keys import object_id
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.log.segment import SNAPSHOT, offset_name
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.segments import SegmentId
from anabranch.core.tiering.built_segment import BuiltSegment, build
from anabranch.core.tiering.plan import PlannedSegment
from anabranch.core.tiering.tries import Call, Lease, PutFiles, one_try
from anabranch.core.types import ZERO_TOPIC_ID, Buffer, TopicId, TopicPartition
from anabranch.core.wire.messages.plan_segments import (
    PlannedPartition,
    PlanSegmentsRequest,
    PlanSegmentsResponse,
)
from anabranch.core.wire.messages.tier_segment import (
    STANDS,
    TierSegmentRequest,
    TierSegmentResponse,
)
from anabranch.sim.chains import Chain, Told
from anabranch.sim.clients.client import Client, Patience
from anabranch.sim.remote_logs import PACE, performed

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.remotes import Remotes

EVERY_MS = 1_500
"""From the end of a wave to the next one."""
MOST_ASKED = 8
"""Attempts of one request."""
GIVEN_UP = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.DUPLICATE_RESOURCE,
)
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Ask = Callable[[Callable[[Any], None]], None]
"""Makes one call; takes who is told what it gave."""
Calls = Generator[Ask, Any, Any]


class Ended(StorageFault):
    """A wave, or a try, does not go on; the text says why."""


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


class TieringJob(Client):
    """See the module. `done` counts waves that came to their end, `segments` what they made."""

    def __init__(
        self, cluster: Cluster, name: str, history: History, topics: tuple[str, ...]
    ) -> None:
        super().__init__(cluster, name, history, topics, Patience())
        assert cluster.remotes is not None
        self.remotes: Remotes = cluster.remotes
        self.done = self.segments = 0
        self.dies_after = 0
        """Calls after which the task dies that makes the next one; 0: none does."""
        self._number = 0

    def start(self) -> None:
        """A driver: one wave after another."""
        self._number += 1
        self._begin(self._number)

    def die(self) -> None:
        """Driver and tasks end at once; calls that were made are carried out all the same."""
        self.remotes.met.add("tiering-driver-died")
        self._number += 1

    def _begin(self, number: int) -> None:
        if self._number != number:
            return
        Chain(self._wave_and_pause(number), self._performer(number)).go_on()

    def _performer(self, number: int) -> Callable[[Ask, Told], None]:
        """Calls of this life of the driver: answers to a former one are not heard."""

        def make(ask: Ask, told: Told) -> None:
            def answered(found: Any) -> None:
                if self._number == number:
                    self.world.after_in(self.process, 0, told, found)

            ask(answered)

        return make

    def _wave_and_pause(self, number: int) -> Calls:
        claim_id = self.random.randrange(1, 1 << 62)
        try:
            yield from self._wave(number, claim_id)
            self.done += 1
        except StorageFault:
            pass  # the next wave goes on
        self.later(EVERY_MS, self._begin, number)

    @property
    def steady_ms(self) -> int:
        """What leases of tries are measured with."""
        return self.world.steady_ms * PACE + self.remotes.ahead_ms

    # Waves.

    def _wave(self, number: int, claim_id: int) -> Calls:
        left: set[LogKey] = set()
        try:
            while True:
                found = yield from self._plan(claim_id)
                planned = [each for each in found if each.key not in left]
                if not planned:
                    return
                left |= yield self._all(number, planned)
        finally:
            self.ask(self.anybody(), PlanSegmentsRequest(claim_id=claim_id, is_done=True), _nothing)

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

    def _all(self, number: int, planned: Sequence[Planned]) -> Ask:
        """All tasks at once; gives the partitions that the wave leaves."""

        def ask(done: Callable[[Any], None]) -> None:
            left: set[LogKey] = set()
            running = len(planned)

            def ended(key: LogKey, is_done: bool) -> None:
                nonlocal running
                running -= 1
                if not is_done:
                    left.add(key)
                if not running:
                    done(left)

            for each in planned:
                Chain(self._task(each, ended), self._performer(number)).go_on()

        return ask

    def _task(self, planned: Planned, ended: Callable[[LogKey, bool], None]) -> Calls:
        try:
            yield from self._tier(planned)
        except StorageFault:
            ended(planned.key, False)
        else:
            self.segments += 1
            ended(planned.key, True)

    def _tier(self, planned: Planned) -> Calls:
        built = yield from self._built(planned)
        steps = one_try(planned.cluster_id, planned.part.topic_name, built)
        yield from performed(steps, lambda step: self._step(planned, built, step))

    def _step(self, planned: Planned, built: BuiltSegment, step: Any) -> Calls:
        match step:
            case Call(number):
                asked_ms = self.steady_ms
                answer = yield from self._tell(planned, built, number)
                return asked_ms, answer
            case PutFiles(files, lease):
                for key, buffers in files.items():
                    yield from self._confirm(planned, built, lease)
                    yield from self._alive()
                    yield self._put(key, buffers)
        return None

    # Objects.

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

    def _read(self, key: str) -> Ask:
        return lambda done: self.remotes.objects.read_whole(self.name, key, done)

    def _put(self, key: str, buffers: Sequence[Buffer]) -> Ask:
        return lambda done: self.remotes.objects.put(self.name, key, buffers, done)

    # Requests.

    def _confirm(self, planned: Planned, built: BuiltSegment, lease: Lease) -> Calls:
        asked_ms = self.steady_ms
        if lease.is_old(asked_ms):
            yield from self._tell(planned, built, STANDS)
            lease.stands(asked_ms)
        lease.check(self.steady_ms)

    def _tell(self, planned: Planned, built: BuiltSegment, step: int) -> Calls:
        part, segment = planned.part, built.segment
        place = TopicPartition(part.topic_name, part.partition_index)
        first = [part.leader_id]

        def leader() -> int:
            if first:
                return first.pop()
            known = self.places.get(place)
            return -1 if known is None else known.leader

        request = TierSegmentRequest(
            claim_id=planned.claim_id,
            step=step,
            topic_id=TopicId(part.topic_id),
            partition_index=part.partition_index,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp=segment.max_timestamp,
            byte_size=segment.byte_size,
        )
        answer: TierSegmentResponse = yield from self._asked(leader, request)
        return answer

    def _asked(self, whom: Callable[[], int], request: Any) -> Calls:
        """Ask until there is an answer. Raises Ended."""
        yield from self._alive()
        for attempt in range(1, MOST_ASKED + 1):
            answer = yield self._request(whom(), request)
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.error_code
            if code == ErrorCode.NONE:
                return answer
            if code in GIVEN_UP:
                raise Ended(f"{ErrorCode(code).name}: {answer.error_message}")
            if answer is None or code in MOVED:
                yield self.refreshed
            yield self._pause(self.backoff_ms(attempt))
        raise Ended("no broker answers")

    def _request(self, node_id: int, request: Any) -> Ask:
        def ask(done: Callable[[Any], None]) -> None:
            self.ask(node_id if node_id >= 0 else self.anybody(), request, done)

        return ask

    def refreshed(self, done: Callable[[Any], None]) -> None:
        """An ask: metadata."""
        self.refresh(lambda: done(None))

    def _pause(self, pause_ms: int) -> Ask:
        return lambda done: self.later(pause_ms, done, None)

    def _alive(self) -> Calls:
        """Before each call of a task: it may die here, and its driver learns of that later."""
        if self.dies_after:
            self.dies_after -= 1
            if not self.dies_after:
                self.remotes.met.add("tiering-task-died")
                yield self._pause(500)
                raise Ended("the task died")


def _nothing(_answer: Any) -> None:
    return None
