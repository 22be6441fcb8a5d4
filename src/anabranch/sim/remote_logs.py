"""What a simulated broker does for its remote logs: performs rounds, and brings what readers lack.

What: in one life of a node, the rounds of the partitions that it leads or follows and of deleted
topics, each call one of the simulated store or coordinator, and a `RemoteCache` whose asks become
reads of the store. What a call gave is an event of the node. The steady clock by which a try's
lease and a removal are measured goes `PACE` times as fast as the world's, so that both end within
a schedule. Rule kept: nothing is decided here. Source: `server/remote`. Not here: rounds
(`core/remote/rounds.py`), faults.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.garbage import turn_of
from anabranch.core.diskless.migration import Phase, Step
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.remote import rounds, segment_copy
from anabranch.core.remote.cache import PiecesOf, RemoteAsk, RemoteCache, RemoteRead
from anabranch.core.remote.facts import Facts, TryEnded
from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.segment_files import (
    SegmentFiles,
    Try,
    describe,
    lineage_of,
    local_segments,
)
from anabranch.core.remote.segment_upload import (
    AskStands,
    Lease,
    PutBatches,
    PutFile,
    uploaded,
)
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.remote.tail import RemoteTail, first_offset
from anabranch.core.remote.unfinished import Removals
from anabranch.core.tiering.seal_rounds import (
    LogEnd,
    LookAtEnd,
    MarkReady,
    RollLog,
    SealLog,
    SealStep,
    migration_round,
)
from anabranch.core.tiering.seals import Seal, carried
from anabranch.core.tiering.tiered_tail import tiered_tail
from anabranch.sim.chains import Chain, Told
from anabranch.sim.coordinator import REMOTE, SEALS

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicId
    from anabranch.sim.node_life import NodeLife
    from anabranch.sim.remotes import Remotes

_T = TypeVar("_T")
PACE = 5
TICK_MS = 250
MIGRATING_TICK_MS, FAILED_MS = 50, 500
MOST_BYTES, MOST_INDEX_BYTES = 8_000, 4_000
"""Little, so that readers meet a cache that has lost what they had."""
MOST_ORPHANS = 100
NO_FACTS = Facts(0, (), 0)

Ask = Callable[[Callable[[Any], None]], None]
"""Makes one call; takes who is told what it gave."""
Calls = Generator[Ask, Any, Any]


class RemoteLog:
    """What this process knows of one partition's remote log between its rounds."""

    def __init__(self) -> None:
        self.removals = Removals()
        self.running: set[SegmentId] = set()
        self.due_ms = 0
        self.leader_epoch = -1
        self.is_busy = False
        self.again_ms = 0
        """When a round may begin while its topic becomes diskless."""
        self.sealed_in: Phase | None = None
        """The phase for which the coordinator was told that this log is ready, or sealed."""


class RemoteLogs:
    """The remote logs of one life of a node."""

    def __init__(self, node: NodeLife, remotes: Remotes) -> None:
        self.node, self.remotes = node, remotes
        self.world, self.broker = node.world, node.broker
        self.cache = RemoteCache(MOST_BYTES, MOST_INDEX_BYTES, lambda: self.world.steady_ms)
        self.ids = self.world.random(f"{node.name}/remote-segments")
        self._life = node.life
        self._logs: dict[LogKey, RemoteLog] = {}
        self._orphans, self._copies = RemoteLog(), RemoteLog()
        self._copied: frozenset[TopicId] = frozenset()
        """Topics that had segments when that was last asked."""
        self._waiting: dict[RemoteAsk, list[Callable[[], None]]] = {}
        self.broker.bringers.register(Bringer.REMOTE, self.bring)
        if remotes.has_tiering:
            self.broker.diskless.make_tail = partial(
                tiered_tail, self.broker.cluster_id, self.cache
            )

    @property
    def steady_ms(self) -> int:
        """What leases and removals are measured with."""
        return self.world.steady_ms * PACE + self.remotes.ahead_ms

    def start(self) -> None:
        """The process speaks now."""
        self._step(self._begin_due)
        is_migrating = any(each.phase is not None for each in self.broker.partitions)
        self.node.later(MIGRATING_TICK_MS if is_migrating else TICK_MS, self.start)

    @property
    def is_copying(self) -> bool:
        """Whether a try of this process is under way."""
        return any(of.running for of in self._logs.values())

    # Rounds.

    def _begin_due(self) -> None:
        now_ms = self.world.steady_ms
        there = {
            _key(each): each
            for each in self.broker.partitions
            if each.log.config.has_remote or (each.is_leader and each.topic_id in self._copied)
        }
        busy = {key: each for key, each in self._logs.items() if each.is_busy}
        self._logs = {key: self._logs.get(key) or RemoteLog() for key in there} | busy
        for key, replica in there.items():
            of = self._logs[key]
            if replica.phase is not None and replica.is_leader and of.sealed_in != replica.phase:
                of.due_ms = min(of.due_ms, of.again_ms)
            if of.leader_epoch != replica.leader_epoch:
                of.leader_epoch, of.due_ms, of.sealed_in = replica.leader_epoch, 0, None
            if not of.is_busy and of.due_ms <= now_ms:
                self._begin(of, Round(self, replica, of).calls())
        if not self._copies.is_busy and self._copies.due_ms <= now_ms:
            self._begin(self._copies, self._ask_for_copies())
        turn, _ = turn_of(self.broker.image, self.broker.broker_id)
        if turn == 0 and not self._orphans.is_busy and self._orphans.due_ms <= now_ms:
            self._begin(self._orphans, self._remove_orphans())

    def _begin(self, of: RemoteLog, calls: Calls) -> None:
        of.is_busy = True
        of.due_ms = self.world.steady_ms + self.broker.config.remote_log_manager_task_interval_ms
        Chain(self._ended(of, calls), self._make).go_on()

    def _ended(self, of: RemoteLog, calls: Calls) -> Calls:
        try:
            yield from calls
        finally:
            of.is_busy = False

    def _ask_for_copies(self) -> Calls:
        self._copied = frozenset((yield self.fact("copied_topics")))

    def _remove_orphans(self) -> Calls:
        segments = yield self.fact("orphans", MOST_ORPHANS)
        steps = rounds.delete_removed(
            self.broker.cluster_id, self._orphans.removals, segments, self.steady_ms
        )
        yield from performed(steps, self.remove)

    def remove(self, step: rounds.Step) -> Calls:
        """See `delete_objects` of a server."""
        objects, name = self.remotes.objects, self.node.name
        match step:
            case rounds.DeleteObjects((first, *others), folder):
                yield lambda done: objects.delete(name, [first], done)
                yield lambda done: objects.delete(name, others, done)
                found = yield lambda done: objects.list(name, folder, done)
                left = [each.key for each in found]
                if left:
                    yield lambda done: objects.delete(name, left, done)
            case rounds.ForgetSegments(segment_ids):
                yield self.fact("forget", segment_ids)

    # Calls.

    def fact(self, name: str, *args: Any) -> Ask:
        """A call of the facts of remote segments."""
        return self.ask(f"{REMOTE}{name}", *args)

    def ask(self, name: str, *args: Any) -> Ask:
        """A call of the coordinator."""
        coordinator = self.remotes.coordinator
        return lambda done: coordinator.ask(self.node.name, name, args, done)

    def _make(self, ask: Ask, told: Told) -> None:
        def answered(found: Any) -> None:
            if self.node.life == self._life:
                self.world.after_in(self.node, 0, self._step, told, found)

        happens = self._counted()
        ask(answered)
        if happens is not None:
            self.world.after(0, happens)

    def _counted(self) -> Callable[[], None] | None:
        """What happens after this call, of a fault that waits for one."""
        name, waiting = self.node.name, self.remotes.after_calls
        left, happens = waiting.pop(name, (0, None))
        if happens is not None and left > 1:
            waiting[name] = left - 1, happens
            return None
        return happens

    def _step(self, act: Callable[..., None], *args: Any) -> None:
        self.node.begin()
        act(*args)
        self.node.settle()

    # Reads.

    def bring(self, reads: Iterable[RemoteRead], done: Callable[[], None]) -> None:
        """See `RemoteReads.bring`."""
        asks = {read.ask: None for read in reads}
        left = len(asks)

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for ask in asks:
            is_new = ask not in self._waiting
            self._waiting.setdefault(ask, []).append(one_ended)
            if is_new:
                self._make(self._read(ask), partial(self._brought, ask))

    def _read(self, ask: RemoteAsk) -> Ask:
        objects, name = self.remotes.objects, self.node.name
        self.remotes.met.add("read")
        if isinstance(ask, PiecesOf):
            return lambda done: objects.read(name, ask.object_key, ask.ranges, done)
        return lambda done: objects.read_whole(name, ask.object_key, done)

    def _brought(self, ask: RemoteAsk, found: Any) -> None:
        self.cache.brought(ask, found)
        for ended in self._waiting.pop(ask):
            ended()


class Round:
    """One round of a partition."""

    def __init__(self, of: RemoteLogs, replica: Replica, log: RemoteLog) -> None:
        self._of, self._replica, self._log = of, replica, log
        self._epoch = replica.leader_epoch
        self._leads = replica.is_leader
        self._has_remote = replica.log.config.has_remote
        self._files: dict[SegmentId, SegmentFiles] = {}

    def calls(self) -> Calls:
        """What it asks for of store and coordinator."""
        replica, of, log = self._replica, self._of, self._log
        before = _starts(replica.log)
        try:
            if self._leads:
                cluster_id = of.broker.cluster_id
                leading = rounds.Leading(
                    cluster_id, _key(replica), self._epoch, log.removals, log.running
                )
                if replica.phase is not None and self._has_remote:
                    yield from self._migrate(leading, replica.phase)
                    return
                steps = rounds.one_round if self._has_remote else rounds.ending_round
                done = yield from performed(steps(leading), self._perform)
                if not self._has_remote:
                    of.remotes.met.add("ended")
                if done.copied and done.lag.segments and done.fault is None:
                    log.due_ms = of.world.steady_ms
            elif self._has_remote:
                yield from performed(rounds.follower_round(_key(replica)), self._perform)
        finally:
            if _starts(replica.log) != before:
                of.broker.changed[replica.topic_partition] = None

    def _migrate(self, leading: rounds.Leading, phase: Phase) -> Calls:
        replica, log, world = self._replica, self._log, self._of.world
        log.sealed_in, log.again_ms = None, world.steady_ms + FAILED_MS
        try:
            migrated = yield from performed(migration_round(leading, phase), self._perform)
        except StorageFault as fault:
            replica.waits_for = str(fault)
            raise
        replica.waits_for = migrated.waits_for
        if migrated.fault is None:
            log.again_ms = world.steady_ms
        if migrated.is_sealed or migrated.is_ready:
            log.sealed_in = phase

    def _seal(self, asked: SealLog) -> Ask:
        """See `_Round._seal` of a server."""
        replica, broker = self._replica, self._of.broker
        log = replica.log
        is_sealed = replica.phase == Phase(Step.SEALING, asked.migration)
        if log.end_offset != asked.end_offset or not is_sealed:
            raise TryEnded(f"{replica.topic_partition}: its log takes records again")
        self._check_stands()
        seal = Seal(
            asked.key,
            replica.topic_partition.topic,
            asked.migration,
            asked.leader_epoch,
            asked.log_start,
            asked.end_offset,
            asked.kept,
            carried(log.producers),
            broker.image.next_producer_id - 1,
        )
        return self._of.ask(f"{SEALS}seal", seal)

    def _log_end(self) -> LogEnd:
        replica, active = self._replica, self._replica.log.active
        return LogEnd(
            replica.log.end_offset,
            replica.high_watermark,
            replica.last_stable_offset,
            0 if active is None else active.size,
            set(replica.in_sync_replicas) == set(replica.replicas),
        )

    def _perform(self, step: SealStep) -> Calls:
        of, replica = self._of, self._replica
        match step:
            case rounds.ReadFacts(key, epoch):
                epochs = lineage_of(replica.log, epoch).entries
                facts = yield of.fact("lead", key, replica.topic_partition.topic, epoch, epochs)
                self._knows(facts)
                return facts
            case rounds.LookAtFacts(key):
                found = yield of.fact("look", key)
                self._knows(found or NO_FACTS)
                return found
            case rounds.LookAtLog():
                return self._look()
            case rounds.BeginRemoval():
                yield of.fact("begin_removal", *step)
            case rounds.RaiseLogStart(_, offset):
                log = replica.log
                self._change(lambda: log.delete_records_before(min(offset, log.end_offset)))
            case rounds.DropLocal(_, offset):
                now_ms, high = of.world.now_ms, replica.high_watermark
                self._change(lambda: replica.log.drop_local(offset, now_ms, high))
            case rounds.DeleteObjects() | rounds.ForgetSegments():
                yield from of.remove(step)
            case segment_copy.Describe():
                return self._describe(step)
            case segment_copy.StartSegment(segment):
                asked_ms = of.steady_ms
                yield of.fact("start", segment)
                return asked_ms
            case segment_copy.UploadFiles(segment, asked_ms):
                yield from self._upload(segment, asked_ms)
            case segment_copy.FinishSegment(segment):
                yield of.fact("finish", segment)
            case LookAtEnd():
                return self._log_end()
            case RollLog():
                self._change(lambda: replica.log.roll(of.world.now_ms))
            case MarkReady(key, migration, epoch):
                yield of.ask(f"{SEALS}ready", key, migration, epoch)
            case SealLog():
                yield self._seal(step)
            case _:
                raise Bug(f"a round asks for {step!r}, which nothing performs")
        return None

    def _knows(self, facts: Facts) -> None:
        replica, of = self._replica, self._of
        if not replica.log.config.has_remote:
            return
        if not isinstance(replica.older, RemoteTail):
            replica.older = RemoteTail(of.broker.cluster_id, of.cache)
        log = replica.log
        lineage = lineage_of(log, replica.leader_epoch)
        if log.start_is_assumed:
            at = first_offset(facts.segments, lineage, facts.log_start, log.local_start_offset)
            log.settle_start(at)
        replica.older.take(facts.segments, lineage, facts.log_start)

    def _check_stands(self) -> None:
        replica = self._replica
        hosted = self._of.broker.partitions.get(*replica.topic_partition)
        if (
            hosted is not replica
            or replica.is_leader != self._leads
            or replica.leader_epoch != self._epoch
            or replica.log.config.has_remote != self._has_remote
        ):
            raise Deposed(f"{replica.topic_partition}: what it was in epoch {self._epoch} is over")

    def _look(self) -> rounds.LocalView:
        replica, of = self._replica, self._of
        log, config = replica.log, replica.config
        segments = _patiently(lambda: local_segments(log))
        self._check_stands()
        return rounds.LocalView(
            lineage_of(log, self._epoch),
            tuple(segments),
            log.start_offset,
            replica.high_watermark,
            replica.last_stable_offset,
            Limits(config.retention_ms, config.retention_bytes),
            Limits(config.local_retention_ms, config.local_retention_bytes),
            not config.remote_log_copy_disable,
            of.steady_ms,
            of.world.now_ms,
        )

    def _change(self, call: Callable[[], object]) -> None:
        self._check_stands()
        try:
            call()
        except StorageFault as fault:
            self._replica.failed(fault, self._of.broker.mailbox)
            raise

    def _describe(self, asked: segment_copy.Describe) -> RemoteSegment | None:
        of, log = self._of, self._replica.log
        made_by = Try(
            SegmentId(of.ids.randbytes(16)), of.broker.broker_id, asked.leader_epoch
        )  # fmt: skip
        found = _patiently(lambda: describe(log, asked.segment, made_by))
        if found is None:
            return None
        segment, self._files[segment.segment_id] = found
        return segment

    def _upload(self, segment: RemoteSegment, asked_ms: int) -> Calls:
        of, log = self._of, self._replica.log
        files = self._files.pop(segment.segment_id)
        topic = self._replica.topic_partition.topic
        lease = Lease(segment, asked_ms, lambda: of.steady_ms)

        def stands(asked: AskStands) -> Calls:
            return (yield of.fact("stands", asked.segment))

        def put(asked: PutBatches | PutFile) -> Calls:
            content = self._batches(asked) if isinstance(asked, PutBatches) else asked.content
            yield from performed(lease.checked(), stands)
            yield self._put(asked.object_key, content)

        puts = uploaded(of.broker.cluster_id, topic, segment, files, lambda: log.cuts)
        yield from performed(puts, put)

    def _put(self, key: str, content: bytes) -> Ask:
        objects, name = self._of.remotes.objects, self._of.node.name
        return lambda done: objects.put(name, key, [content], done)

    def _batches(self, asked: PutBatches) -> bytes:
        content = bytes(self._replica.log.files.read(asked.path))[: asked.byte_size]
        if len(content) != asked.byte_size:
            raise StorageFault(f"{asked.path}: it is shorter than it was")
        return content


def performed(steps: Generator[Any, Any, Any], perform: Callable[[Any], Calls]) -> Calls:
    """Carry out the steps of a generator; gives what it gives. Raises StorageFault."""
    answer: Any = None
    fault: StorageFault | None = None
    while True:
        try:
            step = steps.send(answer) if fault is None else steps.throw(fault)
        except StopIteration as end:
            return end.value
        answer, fault = None, None
        try:
            answer = yield from perform(step)
        except StorageFault as problem:
            fault = problem


def _patiently(ask: Callable[[], _T]) -> _T:
    while True:
        try:
            return ask()
        except ColdRead as cold:
            cold.forget_frames()
            lacking = cold
        lacking.warm()


def _key(replica: Replica) -> LogKey:
    return LogKey(replica.topic_id, replica.topic_partition.partition)


def _starts(log: Log) -> tuple[int, int]:
    return log.start_offset, log.local_start_offset
