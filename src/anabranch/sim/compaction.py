"""A simulated compaction job: waves that read keys, make segments, and swap those of a partition.

What: a wave asks a broker for its plan page by page; tasks read the keys of all groups of segments
at once; what Spark shuffles is compared here; tasks make the new segments, and the leader of each
partition puts them in the place of the old ones. Rule kept: nothing is decided here. Source:
`pipelines/compaction.py`, `compaction_task.py`. Not here: how drivers and tasks die (`job.py`),
judgement (`checks/compaction.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS
from anabranch.core.log.indexes import decode_aborted
from anabranch.core.log.segment import LOG, SNAPSHOT, TRANSACTIONS, offset_name
from anabranch.core.remote.compacted_mark import Mark
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.tiering.built_segment import BuiltSegment
from anabranch.core.tiering.compacted_segment import (
    Files,
    Group,
    Live,
    compact_request,
    compacted,
    keys_of,
)
from anabranch.core.tiering.compaction_plan import grouped
from anabranch.core.tiering.tries import Call, PutFiles, one_try
from anabranch.core.types import ZERO_TOPIC_ID, Buffer
from anabranch.core.wire.messages.compact_segment import SWAP, CompactSegmentRequest, SegmentSwap
from anabranch.core.wire.messages.plan_compaction import (
    PLAN,
    RELEASE,
    PartitionToCompact,
    PlanCompactionRequest,
    PlanCompactionResponse,
)
from anabranch.core.wire.messages.tier_segment import FINISH
from anabranch.sim.job import Calls, Job, nothing
from anabranch.sim.remote_logs import performed

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History


class Planned(NamedTuple):
    """Neighbouring segments of a pass that become one."""

    claim_id: int
    cluster_id: str
    part: PartitionToCompact
    segments: tuple[RemoteSegment, ...]
    before: RemoteSegment | None
    """The one before them, in the pass."""
    whole: tuple[RemoteSegment, ...]
    """All of the pass."""

    @property
    def key(self) -> LogKey:
        """Of the partition."""
        return LogKey(self.part.topic_id, self.part.partition_index)

    @property
    def is_last(self) -> bool:
        """Whether its segment says how far the pass went."""
        return self.segments[-1] is self.whole[-1]


class CompactionJob(Job):
    """See the module. `is_idle`: the last wave found nothing that is worth a pass."""

    family = "compaction"

    def __init__(
        self, cluster: Cluster, name: str, history: History, topics: tuple[str, ...]
    ) -> None:
        super().__init__(cluster, name, history, topics)
        self.is_idle = False

    def _wave(self, number: int, claim_id: int) -> Calls:
        self.is_idle = False
        try:
            planned = yield from self._plan(claim_id)
            self.is_idle = not planned
            if planned:
                yield from self._compact(number, planned)
        finally:
            self.ask(self.anybody(), PlanCompactionRequest(claim_id=claim_id, ask=RELEASE), nothing)

    def _plan(self, claim_id: int) -> Calls:
        found: list[Planned] = []
        topic_id, partition, is_last = ZERO_TOPIC_ID, -1, False
        while not is_last:
            answer: PlanCompactionResponse = yield from self._asked(
                lambda: self.anybody(),
                PlanCompactionRequest(
                    claim_id=claim_id, owner=self.name, ask=PLAN, after_topic_id=topic_id,
                    after_partition=partition,
                ),
            )  # fmt: skip
            for part in answer.partitions:
                found += _groups(claim_id, answer.cluster_id, part)
            is_last = answer.is_last
            topic_id, partition = answer.last_topic_id, answer.last_partition
        return found

    def _compact(self, number: int, planned: Sequence[Planned]) -> Calls:
        """Keys first; then new segments of all partitions whose keys were all read."""
        keys = yield self._all(number, [self._keys(each) for each in planned])
        lost = {
            each.key
            for each, held in zip(planned, keys, strict=True)
            if isinstance(held, StorageFault)
        }
        read = [at for at, each in enumerate(planned) if each.key not in lost]
        newest: dict[tuple[LogKey, bytes], int] = {}
        groups: Counter[tuple[LogKey, bytes]] = Counter()
        for at in read:
            for key, offset in keys[at].items():
                place = planned[at].key, key
                newest[place] = max(offset, newest.get(place, -1))
                groups[place] += 1
        tasks = []
        for at in read:
            log, held = planned[at].key, keys[at]
            live = {offset for key, offset in held.items() if newest[log, key] == offset}
            alone = {offset for key, offset in held.items() if groups[log, key] == 1} & live
            tasks.append(self._rewrite(planned[at], Live(live, alone)))
        made = (yield self._all(number, tasks)) if tasks else []
        by_log: dict[LogKey, list[tuple[Planned, Any]]] = {}
        for at, answer in zip(read, made, strict=True):
            by_log.setdefault(planned[at].key, []).append((planned[at], answer))
        swaps = [
            self._swap(each)
            for each in by_log.values()
            if not any(isinstance(answer, StorageFault) for _, answer in each)
        ]
        if swaps:
            yield self._all(number, swaps)

    # Tasks.

    def _keys(self, planned: Planned) -> Calls:
        yield from self._alive()
        group, files = yield from self._files(planned)
        return keys_of(group, files)

    def _rewrite(self, planned: Planned, live: Live) -> Calls:
        """The new segment's id; None where it would be as the only old one."""
        group, files = yield from self._files(planned)
        told = Live(live.newest, live.alone if planned.part.forgets else set())
        built = compacted(group, files, told, SegmentId(self.random.randbytes(16)))
        content = built.files[offset_name(group.start_offset, LOG)][0]
        is_same = len(files.logs) == 1 and bytes(content) == bytes(files.logs[0])
        if is_same and not planned.is_last:
            return None
        steps = one_try(planned.cluster_id, planned.part.topic_name, built)
        yield from performed(steps, lambda step: self._step(planned, built, step))
        self.segments += 1
        return built.segment.segment_id

    def _step(self, planned: Planned, built: BuiltSegment, step: Any) -> Calls:
        match step:
            case Call(number) if number == FINISH:
                pass  # a swap does it
            case Call(number):
                asked_ms = self.steady_ms
                answer = yield from self._tell(planned, built.segment, number)
                return asked_ms, answer
            case PutFiles():
                tell = built.segment
                yield from self._put_all(step, lambda each: self._tell(planned, tell, each))
        return None

    def _files(self, planned: Planned) -> Calls:
        own, part, whole = planned.segments, planned.part, planned.whole
        ends = {each.end_offset: each for each in (*own, whole[-1])}
        if planned.before is not None:
            ends[planned.before.end_offset] = planned.before
        logs: list[Buffer] = []
        for each in own:
            logs.append((yield from self._file(planned, each, LOG, each.start_offset)))
        snapshots: dict[int, Buffer] = {}
        for end, each in sorted(ends.items()):
            snapshots[end] = yield from self._file(planned, each, SNAPSHOT, end)
        aborted = []
        for each in whole:
            if each.has_aborted:
                held = yield from self._file(planned, each, TRANSACTIONS, each.start_offset)
                aborted += decode_aborted(bytes(held))
        epochs = yield from self._file(planned, own[-1], LEADER_EPOCHS)
        group = Group(
            own, Mark(part.generation, part.upto), part.now_ms, part.delete_retention_ms,
            planned.before.leader_epochs[-1].epoch if planned.before else -1,
            sorted(aborted, key=lambda each: each.first_offset),
        )  # fmt: skip
        return group, Files(logs, snapshots, epochs)

    def _file(self, planned: Planned, of: RemoteSegment, name: str, offset: int = -1) -> Calls:
        folder = segment_folder(planned.cluster_id, planned.key, of.segment_id)
        (held,) = yield self._read(folder + (name if offset < 0 else offset_name(offset, name)))
        return held

    # Requests.

    def _tell(self, planned: Planned, segment: RemoteSegment, step: int) -> Calls:
        request = compact_request(planned.claim_id, segment, step)
        answer = yield from self._at_leader(planned.part, request)
        return answer

    def _swap(self, made: Sequence[tuple[Planned, SegmentId | None]]) -> Calls:
        first, _ = made[0]
        request = CompactSegmentRequest(
            claim_id=first.claim_id,
            step=SWAP,
            topic_id=first.part.topic_id,
            partition_index=first.part.partition_index,
            swaps=[
                SegmentSwap(
                    segment_id=segment_id, replaced=[one.segment_id for one in each.segments]
                )
                for each, segment_id in made
                if segment_id is not None
            ],
        )
        yield from self._at_leader(first.part, request)


def _groups(claim_id: int, cluster_id: str, part: PartitionToCompact) -> list[Planned]:
    key = LogKey(part.topic_id, part.partition_index)
    whole = tuple(
        RemoteSegment(
            SegmentId(each.segment_id), key, each.start_offset, each.end_offset, -1,
            tuple(EpochStart(one.epoch, one.start_offset) for one in each.leader_epochs),
            each.byte_size, -1, -1, each.has_aborted,
        )
        for each in part.segments
    )  # fmt: skip
    found: list[Planned] = []
    before: RemoteSegment | None = None
    for group in grouped(whole, part.most_bytes):
        found.append(Planned(claim_id, cluster_id, part, tuple(group), before, whole))
        before = group[-1]
    return found
