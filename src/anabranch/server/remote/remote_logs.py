"""The shell around a broker's remote logs: when a round is due, and what comes of it.

What: one task that begins, each second, the rounds that are due: of partitions that this broker
leads, of those that it follows, of those that it leads and that have segments though their topics
have a remote log no longer, and, on one living broker, of deleted topics. Rules kept: a
partition has one round at a time, whoever leads, so that a try of this process is known to it; as
many run at once as `remote.log.manager.copier.thread.pool.size` says, those that have waited
longest first; a round that fails comes again, and is said once. Not here: what a round does
(`core/remote/rounds.py`), its calls (`round_performer.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from anabranch.core.diskless.garbage import turn_of
from anabranch.core.diskless.migration import Phase, Step
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.leftovers import Leftovers
from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.rounds import Done, Leading
from anabranch.core.remote.segment_files import lineage_of
from anabranch.core.remote.segments import SegmentId
from anabranch.core.remote.tail import ReadableOf, RemoteTail, readable
from anabranch.core.remote.unfinished import Removals
from anabranch.core.sentences import number_of
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.remote.remote_counts import IdleShare, RemoteStatistics, TopicSizes
from anabranch.server.remote.remote_reads import RemoteReads
from anabranch.server.remote.round_performer import (
    MOST_ON_LOOP,
    World,
    perform_ending_round,
    perform_follower_round,
    perform_migration_round,
    perform_round,
    remove_leftovers,
    remove_orphans,
)
from anabranch.server.restarts import restarted

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.log.log import Log
    from anabranch.core.remote.facts import Facts
    from anabranch.core.replication.replica import Replica
    from anabranch.core.tiering.seal_rounds import Migrated
    from anabranch.core.types import TopicId
    from anabranch.server.diskless.stores import Stores
    from anabranch.server.partitions import PartitionShell

LOG = logger("remote")
TICK_S = 1.0
"""How late a round may begin, and how late a rate that changed may count."""
FAILED_MS = 1_000
"""Until the next round of such a topic, where one has failed."""
MIGRATING_TICK_S = 0.1
"""The same while a topic becomes diskless: its producers may be waiting."""


class RemoteLog:
    """What this process knows of one partition's remote log between its rounds."""

    def __init__(self) -> None:
        self.removals = Removals()
        self.running: set[SegmentId] = set()
        self.due_ms = 0
        self.leader_epoch = -1
        """Of the last round."""
        self.task: asyncio.Task[None] | None = None
        self.done: Done | None = None
        """Of the last round that came to its end while this broker led."""
        self.said = ""
        self.again_ms = 0
        """When a round may begin while its topic becomes diskless."""
        self.sealed_in: Phase | None = None
        """The phase for which the coordinator was told that this log is ready, or sealed."""


Work: TypeAlias = Callable[[RemoteLog], Awaitable[None]]


class RemoteLogs:
    """The remote logs of one broker's partitions."""

    def __init__(self, broker: Broker, partitions: PartitionShell, reads: RemoteReads) -> None:
        self.broker, self.partitions, self.reads = broker, partitions, reads
        self._world: World | None = None
        self._logs: dict[LogKey, RemoteLog] = {}
        self._orphans = RemoteLog()
        self._copies = RemoteLog()
        self._left, self._leftovers = RemoteLog(), Leftovers()
        self._copied: frozenset[TopicId] = frozenset()
        """Topics that had segments when that was last asked."""
        self._idle = IdleShare()
        self._ticking: asyncio.Task[None] | None = None

    def start(self, stores: Stores, cluster_id: str) -> None:
        """Coordinator and store can be used."""
        self.reads.start(stores.objects)
        self._world = World(
            stores.remote, stores.objects, cluster_id, self.broker.broker_id, CopyPace(),
            lambda: uuid.uuid4().bytes, steady_ms, wall_ms, self.reads.counts, stores.seals,
        )  # fmt: skip
        self._ticking = asyncio.get_running_loop().create_task(
            restarted(self._tick, "the upkeep of remote logs", LOG)
        )

    async def stop(self) -> None:
        """Begin no round, and end those that run: what they began is given up by the next leader,
        or the next life of this broker."""
        others = (self._orphans, self._copies, self._left)
        running = [each.task for each in (*self._logs.values(), *others)]
        tasks = [each for each in (self._ticking, *running) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.reads.stop()

    def log_of(self, replica: Replica) -> RemoteLog | None:
        """What is known of a partition's remote log; None before its first round."""
        return self._logs.get(key_of(replica))

    async def _tick(self) -> None:
        while True:
            self.begin_due(steady_ms())
            self._sample()
            is_migrating = any(each.phase is not None for each in self.broker.partitions)
            await asyncio.sleep(MIGRATING_TICK_S if is_migrating else TICK_S)

    def begin_due(self, now_ms: int) -> None:
        """Begin the rounds that are due."""
        world, config = self._world, self.broker.config
        assert world is not None
        world.pace.bytes_per_second = config.remote_log_manager_copy_max_bytes_per_second
        there = {
            key_of(each): each
            for each in self.broker.partitions
            if each.log.config.has_remote or (each.is_leader and each.topic_id in self._copied)
        }
        running = {key: each for key, each in self._logs.items() if each.task is not None}
        self._logs = {key: self._logs.get(key) or RemoteLog() for key in there} | running
        room = config.remote_log_manager_copier_thread_pool_size - len(running)
        for key, replica in there.items():
            of = self._logs[key]
            if replica.phase is not None and replica.is_leader:
                if of.sealed_in != replica.phase:
                    of.due_ms = min(of.due_ms, of.again_ms)
            if of.leader_epoch != replica.leader_epoch:  # a leader is known from its first round on
                of.leader_epoch, of.due_ms, of.sealed_in = replica.leader_epoch, 0, None
        due = [key for key in there if key not in running and self._logs[key].due_ms <= now_ms]
        due.sort(key=lambda key: (self._logs[key].due_ms, key))
        for key in due[: max(0, room)]:
            self._begin(self._logs[key], partial(self._round, world, there[key]))
        if self._copies.task is None and self._copies.due_ms <= now_ms:
            self._begin(self._copies, partial(self._ask_for_copies, world))
        turn, _ = turn_of(self.broker.image, self.broker.broker_id)
        if turn == 0:
            for of, work in ((self._orphans, self._remove_orphans), (self._left, self._clear_up)):
                if of.task is None and of.due_ms <= now_ms:
                    self._begin(of, partial(work, world))

    def _sample(self) -> None:
        running = sum(each.task is not None for each in self._logs.values())
        self._idle.sample(running, self.broker.config.remote_log_manager_copier_thread_pool_size)
        self.reads.sample()
        self.reads.counts.keep({each.topic_partition.topic for each in self.broker.partitions})

    def statistics(self) -> RemoteStatistics | None:
        """For metrics; None where remote logs are off, or their store cannot be used yet."""
        if self._world is None:
            return None
        counts = self.reads.counts
        return RemoteStatistics(
            {topic: dict(each) for topic, each in counts.totals.items()},
            self._sizes(),
            self._idle.value,
            self.reads.idle.value,
            self.reads.waiting,
            self.reads.reads,
            self.reads.read_ms,
        )

    def _sizes(self) -> dict[str, TopicSizes]:
        """Of the topics of which this broker leads partitions, as their last rounds found them."""
        found: dict[str, TopicSizes] = {}
        for replica in self.broker.partitions:
            of = self._logs.get(key_of(replica))
            if not replica.is_leader or of is None or of.done is None:
                continue
            topic = replica.topic_partition.topic
            took_ms = self.reads.counts.computation_ms.get(topic, 0)
            found[topic] = found.get(topic, TopicSizes(computation_ms=took_ms)).with_(of.done)
        return found

    def _begin(self, of: RemoteLog, work: Work) -> None:
        of.task = asyncio.get_running_loop().create_task(self._ended(of, work))

    async def _ended(self, of: RemoteLog, work: Work) -> None:
        of.due_ms = steady_ms() + self.broker.config.remote_log_manager_task_interval_ms
        try:
            await work(of)
        except Exception as fault:
            tell_unexpected(fault, "a round of a remote log")
            LOG.error("a round of a remote log failed", fault=repr(fault))
        finally:
            of.task = None

    async def _round(self, world: World, replica: Replica, of: RemoteLog) -> None:
        before = starts(replica.log)
        fault: StorageFault | None = None
        try:
            if replica.is_leader:
                fault = await self._lead(world, replica, of)
            elif replica.log.config.has_remote:
                hosted = _Hosted(self, replica)
                key, epoch = key_of(replica), replica.leader_epoch
                await perform_follower_round(world, key, epoch, hosted)
        except StorageFault as problem:
            fault = problem
        if fault is not None:
            replica.waits_for = str(fault)
        of.again_ms = steady_ms() + (FAILED_MS if fault is not None else 0)
        self._say(of, "" if fault is None else str(fault), replica.topic_partition)
        if starts(replica.log) != before:
            self.broker.changed[replica.topic_partition] = None
        if self.broker.faults:
            self.partitions.take_faults()
        self.partitions.tell_changed()

    async def _lead(self, world: World, replica: Replica, of: RemoteLog) -> StorageFault | None:
        leading = Leading(
            world.cluster_id, key_of(replica), replica.leader_epoch, of.removals, of.running
        )
        hosted = _Hosted(self, replica)
        if replica.phase is not None and hosted.has_remote:
            migrated = await self._migrate(world, leading, hosted, replica.phase, of)
            replica.waits_for = migrated.waits_for
            return migrated.fault
        perform = perform_round if hosted.has_remote else perform_ending_round
        of.done = await perform(world, leading, hosted)
        if of.done.copied and of.done.lag.segments and of.done.fault is None:
            of.due_ms = steady_ms()  # the others have their turn first
        return of.done.fault

    async def _migrate(
        self, world: World, leading: Leading, hosted: _Hosted, phase: Phase, of: RemoteLog
    ) -> Migrated:
        of.sealed_in = None
        migrated = await perform_migration_round(world, leading, hosted, phase)
        of.done = migrated.done or of.done
        if migrated.is_sealed or migrated.is_ready:
            of.sealed_in = phase
        return migrated

    async def _ask_for_copies(self, world: World, _of: RemoteLog) -> None:
        """A leader whose topic's remote log is over ends it, whoever has copied."""
        why = ""
        try:
            self._copied = frozenset(await world.facts.copied_topics())
        except StorageFault as fault:
            why = str(fault)
        self._say(self._copies, why, "topics with remote segments")

    async def _remove_orphans(self, world: World, _of: RemoteLog) -> None:
        why = ""
        try:
            await remove_orphans(world, self._orphans.removals)
        except StorageFault as fault:
            why = str(fault)
        self._say(self._orphans, why, "deleted topics")

    async def _clear_up(self, world: World, _of: RemoteLog) -> None:
        why = ""
        try:
            found = await remove_leftovers(world, self._leftovers)
            self._left.due_ms = steady_ms() + found.next_look_ms
            if found.gone:
                LOG.info("objects without a fact were removed", segments=found.gone)
            if found.whole:
                why = (
                    f"the coordinator does not know {number_of(found.whole, 'segment')} of the "
                    "store: kept; `anabranch remote verify` names what is there"
                )
        except StorageFault as fault:
            why = str(fault)
        self._say(self._left, why, "objects without a fact")

    def _say(self, of: RemoteLog, why: str, what: object) -> None:
        if why and why != of.said:
            LOG.warning("a round of a remote log ended early", what=str(what), why=why)
        of.said = why


class _Hosted:
    """See `HostedLog`."""

    def __init__(self, of: RemoteLogs, replica: Replica) -> None:
        self._of, self._replica, self._is_leader = of, replica, replica.is_leader
        self.topic = replica.topic_partition.topic
        self.has_remote = replica.log.config.has_remote

    @property
    def limits(self) -> Limits:
        config = self._replica.config
        return Limits(config.retention_ms, config.retention_bytes)

    @property
    def local(self) -> Limits:
        config = self._replica.config
        return Limits(config.local_retention_ms, config.local_retention_bytes)

    @property
    def copies(self) -> bool:
        return not self._replica.config.remote_log_copy_disable

    @property
    def log(self) -> Log:
        return self._replica.log

    @property
    def high_watermark(self) -> int:
        return self._replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._replica.last_stable_offset

    @property
    def is_in_sync(self) -> bool:
        return set(self._replica.in_sync_replicas) == set(self._replica.replicas)

    @property
    def last_producer_id(self) -> int:
        return self._of.broker.image.next_producer_id - 1

    def is_sealed_for(self, migration: int) -> bool:
        return self._replica.phase == Phase(Step.SEALING, migration)

    def stands(self, leader_epoch: int) -> bool:
        replica = self._replica
        return (
            self._of.partitions.is_hosted(replica)
            and replica.is_leader == self._is_leader
            and replica.leader_epoch == leader_epoch
            and replica.log.config.has_remote == self.has_remote
        )

    async def knows(self, facts: Facts) -> None:
        replica = self._replica
        if not replica.log.config.has_remote:
            return
        if not isinstance(replica.older, RemoteTail):
            replica.older = RemoteTail(self._of.broker.cluster_id, self._of.reads.cache)
        lineage = lineage_of(replica.log, replica.leader_epoch)
        of, tail = ReadableOf(facts.segments, lineage, facts.log_start), replica.older
        if tail.is_of(of):
            return
        is_long = len(facts.segments) > MOST_ON_LOOP
        tail.use(await asyncio.to_thread(readable, of) if is_long else readable(of))

    def failed(self, fault: StorageFault) -> None:
        self._replica.failed(fault, self._of.broker.mailbox)


def key_of(replica: Replica) -> LogKey:
    """Whose remote log a replica's is."""
    return LogKey(replica.topic_id, replica.topic_partition.partition)


def starts(log: Log) -> tuple[int, int]:
    """Of the whole log, and of what is local."""
    return log.start_offset, log.local_start_offset
