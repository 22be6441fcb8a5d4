"""What the driver does beside the waves: topics, settings, syncs, checkpoints, groups, heartbeats.

What: `Duties.tick` does what is due by the clock it is given. Rules kept: a duty that fails is
told, once for the same reason, and tried again when it is due next; none holds up a wave.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.client.lanes import ProduceFailed
from anabranch.client.partitioner import partition_for
from anabranch.client.produce import produce
from anabranch.client.ranges import RangeLost, ReadingStalled
from anabranch.core.errors import ApiError
from anabranch.core.mirror.checkpoints import SyncState, syncs_of
from anabranch.core.mirror.config import Pair
from anabranch.core.mirror.formats import Heartbeat, heartbeat_record, sync_record
from anabranch.core.mirror.index import Chunk, IndexRun, below
from anabranch.core.mirror.policy import HEARTBEATS
from anabranch.core.types import EARLIEST
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.mirror.acls import sync_acls
from anabranch.pipelines.mirror.clusters import cluster_of
from anabranch.pipelines.mirror.driver_flow import INDEX_PARTITIONS, FlowState
from anabranch.pipelines.mirror.groups import Groups, write_records
from anabranch.pipelines.mirror.positions import Place
from anabranch.pipelines.mirror.remote_topics import internal

FOLLOW_SECONDS = 1.0
TRIM_SECONDS = 60.0
TROUBLE = (ApiError, ConnectionLost, ProduceFailed, RangeLost, ReadingStalled)
Tell = Callable[[str], None]


class DutyState(NamedTuple):
    """The status of a duty."""

    failed: bool
    """Whether it failed the last time."""
    done_at: float | None
    """When it last succeeded, in seconds of the wall's clock."""


class Schedule:
    """What is due when, by name; everything is due at first."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._due: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._done_at: dict[str, float] = {}

    def statistics(self) -> dict[str, DutyState]:
        """Each duty that was due once, by name."""
        return {
            name: DutyState(name in self._faults, self._done_at.get(name)) for name in self._due
        }

    async def do(
        self, name: str, now: float, seconds: float, work: Callable[[], Awaitable[object]]
    ) -> None:
        """Do a duty if it is due; a fault is told once."""
        if now < self._due.get(name, 0.0):
            return
        self._due[name] = now + seconds
        try:
            await work()
            self._faults.pop(name, None)
            self._done_at[name] = time.time()
        except TROUBLE as fault:
            if self._faults.get(name) != str(fault):
                self._faults[name] = str(fault)
                self._tell(f"{name}: {fault}")


class Duties:
    """The duties of one flow."""

    def __init__(self, state: FlowState, tell: Tell, now_ms: Callable[[], int]) -> None:
        self.groups = Groups(state, tell)
        self._state = state
        self._flow = state.flow
        self._tell = tell
        self._now_ms = now_ms
        self._schedule = Schedule(tell)
        self._syncs: dict[Place, SyncState] = {}
        self._unsynced: list[Chunk] = []
        self._seen: dict[Place, int] = {}
        """Place at the source -> the upstream offset up to which syncs were considered."""

    def statistics(self) -> dict[str, DutyState]:
        """Each duty of the flow by its name alone."""
        prefix = f"{self._flow.name} "
        known = self._schedule.statistics()
        return {name.removeprefix(prefix): state for name, state in known.items()}

    async def open(self) -> None:
        """Create the topics that the duties write. Raises ApiError."""
        flow, policy = self._flow, self._state.policy
        if flow.on("emit.checkpoints.enabled"):
            await internal(
                self._state.target, policy.checkpoints_topic(), partitions=1,
                replication_factor=flow.number("checkpoints.topic.replication.factor"),
                key="checkpoints.topic.replication.factor",
            )  # fmt: skip
        if flow.on("emit.offset-syncs.enabled"):
            cluster, name = self._syncs_place()
            await internal(
                cluster, name, partitions=1,
                replication_factor=flow.number("offset-syncs.topic.replication.factor"),
                key="offset-syncs.topic.replication.factor",
            )  # fmt: skip

    def _syncs_place(self) -> tuple[Cluster, str]:
        flow, policy = self._flow, self._state.policy
        if flow.settings["offset-syncs.topic.location"] == "target":
            return self._state.target, policy.offset_syncs_topic(flow.source)
        return self._state.source, policy.offset_syncs_topic(flow.target)

    async def tick(self, now: float) -> None:
        """Do what is due; `now` is in seconds, of a clock that never goes back."""
        flow, do = self._flow, self._schedule.do
        name = flow.name
        if flow.on("refresh.topics.enabled"):
            seconds = flow.number("refresh.topics.interval.seconds")
            await do(f"{name} topics", now, seconds, self._refresh_topics)
        await do(f"{name} index", now, FOLLOW_SECONDS, self.follow)
        await do(f"{name} log starts", now, TRIM_SECONDS, self.trim)
        if flow.on("sync.topic.configs.enabled"):
            seconds = flow.number("sync.topic.configs.interval.seconds")
            await do(f"{name} settings", now, seconds, self._sync_configs)
        if flow.on("sync.topic.acls.enabled"):
            seconds = flow.number("sync.topic.acls.interval.seconds")
            await do(f"{name} ACLs", now, seconds, lambda: sync_acls(self._state))
        await self._tick_groups(now)

    async def _tick_groups(self, now: float) -> None:
        flow, do = self._flow, self._schedule.do
        syncs = flow.on("sync.group.offsets.enabled")
        if not (flow.on("emit.checkpoints.enabled") or syncs):
            return
        if flow.on("refresh.groups.enabled"):
            seconds = flow.number("refresh.groups.interval.seconds")
            await do(f"{flow.name} groups", now, seconds, self.groups.refresh)
        if syncs and flow.on("sync.group.offsets.continuous"):
            await do(f"{flow.name} offsets", now, FOLLOW_SECONDS, self.groups.follow)
        seconds = flow.number("emit.checkpoints.interval.seconds")
        if syncs:
            seconds = min(seconds, flow.number("sync.group.offsets.interval.seconds"))
        await do(f"{flow.name} checkpoints", now, seconds, lambda: self.groups.run(sync=syncs))

    async def _refresh_topics(self) -> None:
        await self._state.topics.refresh(self._state.source, self._state.target)

    async def _sync_configs(self) -> None:
        await self._state.topics.sync_configs(self._state.source, self._state.target)

    async def follow(self) -> None:
        """Read the index on, and write the syncs of MirrorMaker 2's own readers."""
        await self._state.ledger.read(self._state.target)
        self._unsynced += self._state.ledger.take_fresh()
        if not self._flow.on("emit.offset-syncs.enabled"):
            self._unsynced.clear()
            return
        most_lag = self._flow.number("offset.lag.max")
        latest = {(each.topic, each.partition, each.runs[0].downstream): each
                  for each in self._unsynced}  # fmt: skip
        found = []
        for chunk in latest.values():
            place = chunk.topic, chunk.partition
            state = self._syncs.setdefault(place, SyncState())
            for run in self._news(place, chunk):
                found += syncs_of(state, *place, run, most_lag)
        cluster, name = self._syncs_place()
        await write_records(cluster, name, map(sync_record, found))
        self._unsynced.clear()

    def _news(self, place: Place, chunk: Chunk) -> list[IndexRun]:
        """The part of a chunk's runs that was not looked at before, by the target's offsets."""
        seen = self._seen.get(place, -1)
        found = []
        for run in chunk.runs:
            skipped = max(0, min(run.records, seen - run.downstream))
            if skipped < run.records:
                found.append(IndexRun(run.upstream + skipped, run.downstream + skipped,
                                      run.records - skipped))  # fmt: skip
        self._seen[place] = max(seen, chunk.runs[-1].downstream_end)
        return found

    async def trim(self) -> None:
        """Learn where the target's logs begin, and drop what the index has of before."""
        state = self._state
        tombstones: dict[bytes, None] = {}
        for name, shape in state.topics.there.items():
            source = state.topics.mirrored[name]
            with suppress(ApiError):
                starts = await list_offsets(state.target, name, EARLIEST, ready_only=True)
                for partition, start in starts.items():
                    self.groups.log_starts[name, partition] = start
                    chunks = [
                        each
                        for each in state.ledger.chunks.get((source.name, partition), {}).values()
                        if each.target_id == shape.topic_id
                    ]
                    tombstones |= {each.key: None for each in below(chunks, start)}
        by_partition: dict[int, list[bytes]] = {}
        for key in tombstones:
            by_partition.setdefault(partition_for(key, INDEX_PARTITIONS), []).append(key)
        for partition, keys in by_partition.items():
            records = [Record(at, self._now_ms(), key, None) for at, key in enumerate(keys)]
            topic = state.policy.index_topic()
            await produce(state.target, topic, partition, build_batch(records))


class Heart:
    """Heartbeats of one pair of clusters."""

    def __init__(self, pair: Pair, tell: Tell, now_ms: Callable[[], int]) -> None:
        self._pair = pair
        self._schedule = Schedule(tell)
        self._now_ms = now_ms
        self._cluster = cluster_of(pair.target_client, "heartbeats")
        self._is_open = False

    async def tick(self, now: float) -> None:
        """Beat if it is due."""
        pair = self._pair
        name = f"heartbeats {pair.source}->{pair.target}"
        await self._schedule.do(name, now, pair.seconds, self._beat)

    async def _beat(self) -> None:
        if not self._is_open:
            await self._cluster.metadata([])
            await internal(
                self._cluster, HEARTBEATS, partitions=1, key="heartbeats.topic.replication.factor",
                replication_factor=self._pair.replication_factor,
            )  # fmt: skip
            self._is_open = True
        beat = Heartbeat(self._pair.source, self._pair.target, self._now_ms())
        await write_records(self._cluster, HEARTBEATS, [heartbeat_record(beat)])

    async def close(self) -> None:
        """Disconnect."""
        await self._cluster.close()
