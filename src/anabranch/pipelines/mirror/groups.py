"""Groups of a flow: checkpoints on the target, and groups moved there while they are empty.

What: `Groups.run` translates what groups have committed at the source, by the exact index, and
writes the checkpoints that are due; with `sync.group.offsets.enabled` it gives the target's groups
their offsets; with `sync.group.offsets.continuous` it does both for the groups that have committed
since the last look, which it learns from the source's `__consumer_offsets`. Rules kept: those of
`core.mirror.checkpoints`; a group that has members on the target, or that a cluster refuses, is
left alone and told once. Source: KIP-382, KIP-545.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from anabranch.client.cluster import Cluster
from anabranch.client.fetch import list_offsets
from anabranch.client.groups import commit_offsets, committed_offsets, describe_group, list_groups
from anabranch.client.produce import produce
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ApiError, ErrorCode, ProtocolError
from anabranch.core.mirror.checkpoints import Synced, due, to_sync
from anabranch.core.mirror.figures import RecentSpread
from anabranch.core.mirror.formats import (
    Checkpoint,
    ForeignRecord,
    checkpoint_record,
    read_checkpoint,
)
from anabranch.core.types import LATEST
from anabranch.core.wire.offsets_records import OffsetCommitKey, decode_key
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.positions import Place
from anabranch.pipelines.mirror.rights import missing_right
from anabranch.pipelines.mirror.topic_reader import read_on

T = TypeVar("T")
AT_ONCE = 16
"""Groups that are asked for at the same time."""
EMPTY, DEAD = "Empty", "Dead"
Tell = Callable[[str], None]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def write_records(
    cluster: Cluster, topic: str, pairs: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Write keyed records into partition 0."""
    now_ms = _now_ms()
    records = [Record(index, now_ms, *pair) for index, pair in enumerate(pairs)]
    if records:
        await produce(cluster, topic, 0, build_batch(records))


class Groups:
    """The groups of one flow."""

    def __init__(self, state: FlowState, tell: Tell) -> None:
        self._state = state
        self._tell = tell
        self.names: list[str] = []
        """The groups of the source whose offsets are translated."""
        self._last: dict[tuple[str, Place], Checkpoint] | None = None
        """(group, place on the target) -> the newest checkpoint."""
        self._given: dict[str, dict[Place, Synced]] = {}
        self._told: set[str] = set()
        self._faults: dict[str, str] = {}
        self._followed: dict[int, int] | None = None
        self._unsettled: set[str] = set()
        """Groups that are somewhere that the mirror has not come to."""
        self.latencies: dict[tuple[str, Place], RecentSpread] = {}
        """(group, place on the target) -> times from reading an offset to its checkpoint."""
        self.log_starts: dict[Place, int] = {}
        """Place on the target -> its first offset, as far as it is known."""

    async def refresh(self) -> None:
        """Look for groups at the source."""
        found = await list_groups(self._state.source)
        names = self._state.flow.groups
        self.names = [each.group_id for each in found.groups if names.takes(each.group_id)]
        known = set(self.names)
        self.latencies = {key: each for key, each in self.latencies.items() if key[0] in known}

    async def run(self, only: Collection[str] | None = None, *, sync: bool = False) -> int:
        """Write the checkpoints that are due, of some groups or all, and move groups with `sync`;
        how many checkpoints were written."""
        if self._last is None:
            self._last = await self._read()
        names = self.names if only is None else [each for each in self.names if each in only]
        limit = asyncio.Semaphore(AT_ONCE)

        read_ms: dict[str, int] = {}

        async def look(name: str) -> list[Checkpoint]:
            async with limit:
                read_ms[name] = _now_ms()
                at_source = f"DESCRIBE on group {name} on {self._state.flow.source}"
                return await self._alone(name, self.translated(name), at_source) or []

        found = await asyncio.gather(*map(look, names))
        if self._state.flow.on("emit.checkpoints.enabled"):
            written = await self._write([each for all in found for each in all], read_ms)
        else:
            written = 0
        if sync:
            for name, checkpoints in zip(names, found, strict=True):
                on_target = f"READ on group {name} and on its topics on {self._state.flow.target}"
                await self._alone(name, self._sync(name, checkpoints), on_target)
        return written

    async def _alone(self, group: str, work: Awaitable[T], right: str) -> T | None:
        """Do something for one group: what a cluster refuses is told once, and the others go on;
        `right` is what it may want."""
        try:
            done = await work
        except ApiError as fault:
            remedy = missing_right(fault.code, right)
            sentence = f"{self._state.flow.name}: group {group}: {fault.message}{remedy}"
            if self._faults.get(right) != sentence:
                self._faults[right] = sentence
                self._tell(sentence)
            return None
        self._faults.pop(right, None)
        return done

    async def _read(self) -> dict[tuple[str, Place], Checkpoint]:
        found = {}
        topic = self._state.policy.checkpoints_topic()
        for record in (await read_on(self._state.target, topic, {})).records:
            try:
                each = read_checkpoint(record.key or b"", record.value or b"")
            except ForeignRecord:
                continue
            found[each.group, (each.topic, each.partition)] = each
        return found

    async def translated(self, group: str) -> list[Checkpoint]:
        """Where a group is, in both clusters, of the partitions that this flow mirrors."""
        topics, policy = self._state.topics, self._state.policy
        committed = await committed_offsets(self._state.source, group)
        found = []
        self._unsettled.discard(group)
        for (topic, partition), offset in sorted(committed.items()):
            name = policy.remote_topic(topic)
            if offset < 0 or name not in topics.mirrored or name not in topics.there:
                continue
            index = self._state.ledger.index(
                (topic, partition), source_id=topics.mirrored[name].topic_id,
                target_id=topics.there[name].topic_id,
            )  # fmt: skip
            start = self.log_starts.get((name, partition), 0)
            downstream = index.translate(offset, log_start=start)
            if downstream is None or offset > index.upstream_end:
                self._unsettled.add(group)
            if downstream is not None:
                found.append(Checkpoint(group, name, partition, offset, downstream))
        return found

    async def _write(self, checkpoints: list[Checkpoint], read_ms: Mapping[str, int]) -> int:
        assert self._last is not None
        new = []
        for each in checkpoints:
            key = each.group, (each.topic, each.partition)
            if due(self._last.get(key), each.upstream, each.downstream):
                new.append(each)
        topic = self._state.policy.checkpoints_topic()
        await write_records(self._state.target, topic, map(checkpoint_record, new))
        now_ms = _now_ms()
        for each in new:
            key = each.group, (each.topic, each.partition)
            self._last[key] = each
            latency = self.latencies.setdefault(key, RecentSpread())
            latency.add(max(0, now_ms - read_ms[each.group]), now_ms)
        return len(new)

    async def _sync(self, group: str, checkpoints: list[Checkpoint]) -> None:
        target = self._state.target
        wanted = {
            (each.topic, each.partition): Synced(each.upstream, each.downstream)
            for each in checkpoints
        }
        if not wanted or not await self._is_empty(group):
            return
        there = await committed_offsets(target, group)
        given = self._given.setdefault(group, {})
        changes = to_sync(wanted, there, given)
        if changes:
            try:
                await commit_offsets(target, group, changes)
            except ApiError as fault:
                if fault.code is not ErrorCode.NON_EMPTY_GROUP:
                    raise
                self._say_active(group)
                return
        moved = {place: each for place, each in wanted.items() if place in changes}
        same = {p: each for p, each in wanted.items() if there.get(p) == each.downstream}
        given |= moved | same

    async def _is_empty(self, group: str) -> bool:
        try:
            found = await describe_group(self._state.target, group)
        except ApiError as fault:
            if fault.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return True
            raise
        if found.group_state in (EMPTY, DEAD):
            self._told.discard(group)
            return True
        self._say_active(group)
        return False

    def _say_active(self, group: str) -> None:
        if group not in self._told:
            self._told.add(group)
            flow = self._state.flow
            self._tell(
                f"{flow.name}: group {group} has members on {flow.target}, so its offsets there "
                "are left to them."
            )

    async def follow(self) -> None:
        """Look which groups have committed since the last time, and go on with these."""
        source = self._state.source
        if self._followed is None:
            self._followed = await list_offsets(source, OFFSETS_TOPIC, LATEST)
            await self.refresh()
            await self.run(sync=True)
            return
        read = await read_on(source, OFFSETS_TOPIC, self._followed)
        self._followed = read.offsets
        names = {name for record in read.records if (name := _group_of(record)) is not None}
        new = names - set(self.names)
        flow = self._state.flow
        self.names += [each for each in sorted(new) if flow.groups.takes(each)]
        names |= self._unsettled
        if names:
            await self.run(names, sync=True)


def _group_of(record: Record) -> str | None:
    """The group whose offset a record of `__consumer_offsets` has."""
    try:
        key = decode_key(record.key or b"")
    except ProtocolError:
        return None
    return key.group if isinstance(key, OffsetCommitKey) else None
