"""Performs rounds of remote logs on a real log and real stores.

What: each call of `core/remote/rounds.py`. Rules kept: what has to be read from a disk first is
read in a thread; a partition that is no longer led in the round's epoch ends it; what an upload in
parts has left beside the objects of a removal goes with them. Not here: when a round is due,
decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.migration import Phase
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.remote import rounds, segment_copy
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import Facts, RemoteFacts, TryEnded
from anabranch.core.remote.keys import remote_prefix
from anabranch.core.remote.leftovers import Folder, Found, Leftovers, Listing
from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.segment_files import (
    SegmentFiles,
    Try,
    describe,
    lineage_of,
    local_segments,
)
from anabranch.core.remote.segment_upload import Lease, uploaded
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.remote.tail import first_offset
from anabranch.core.remote.unfinished import Removals
from anabranch.core.tiering.seal_rounds import (
    LogEnd,
    LookAtEnd,
    MarkReady,
    Migrated,
    RollLog,
    SealLog,
    SealStep,
    migration_round,
)
from anabranch.core.tiering.seals import Seal, Seals, carried
from anabranch.server.chains import carried_out
from anabranch.server.remote.remote_counts import DELETED, RemoteCounts
from anabranch.server.remote.segment_upload import Upload

_T = TypeVar("_T")
NO_FACTS = Facts(0, (), 0)
MOST_ON_LOOP = 500
"""Segments of a partition that are looked at without a thread: a few milliseconds."""
MOST_ORPHANS = 1_000
"""Segments of deleted topics that one round sees to."""


class HostedLog(Protocol):
    """A partition that this broker leads or follows, or did when its round began."""

    topic: str

    @property
    def limits(self) -> Limits:
        """Of the whole log."""

    @property
    def local(self) -> Limits:
        """Of what is on this disk."""

    @property
    def copies(self) -> bool:
        """False with `remote.log.copy.disable`."""

    @property
    def log(self) -> Log:
        """What is on this disk."""

    @property
    def high_watermark(self) -> int:
        """See `Partition`."""

    @property
    def last_stable_offset(self) -> int:
        """See `Partition`."""

    @property
    def is_in_sync(self) -> bool:
        """Whether all replicas are in sync."""

    @property
    def last_producer_id(self) -> int:
        """The greatest that this broker knows to have been given in the cluster; -1: none."""

    def is_sealed_for(self, migration: int) -> bool:
        """Whether the log takes no records while this migration seals it."""

    def stands(self, leader_epoch: int) -> bool:
        """Whether this broker still leads, or follows, in that epoch."""

    async def knows(self, facts: Facts) -> None:
        """Readers use these facts from now on: what a round drops next is found by them."""

    def failed(self, fault: StorageFault) -> None:
        """The disk refused a change of the log."""


class World(NamedTuple):
    """What one broker's rounds have in common."""

    facts: RemoteFacts
    objects: ObjectStore
    cluster_id: str
    broker_id: int
    pace: CopyPace
    new_id: Callable[[], bytes]
    steady_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    counts: RemoteCounts
    seals: Seals | None = None
    """None where no topic becomes diskless."""


async def perform_round(world: World, leading: rounds.Leading, led: HostedLog) -> rounds.Done:
    """One round of a partition. Raises StorageFault where it ended early."""
    return await _Round(world, leading.leader_epoch, led).run(rounds.one_round(leading))


async def perform_migration_round(
    world: World, leading: rounds.Leading, led: HostedLog, phase: Phase
) -> Migrated:
    """One round of a partition whose topic becomes diskless. Raises StorageFault where it ended
    early."""
    return await _Round(world, leading.leader_epoch, led).run(migration_round(leading, phase))


async def perform_ending_round(
    world: World, leading: rounds.Leading, led: HostedLog
) -> rounds.Done:
    """One round of a partition whose remote log is over. Raises StorageFault."""
    return await _Round(world, leading.leader_epoch, led).run(rounds.ending_round(leading))


async def perform_follower_round(
    world: World, key: LogKey, leader_epoch: int, followed: HostedLog
) -> None:
    """One round of a partition that this broker follows in an epoch. Raises StorageFault."""
    await _Round(world, leader_epoch, followed).run(rounds.follower_round(key))


async def remove_orphans(world: World, removals: Removals) -> None:
    """Go on with removals of deleted topics. Raises StorageFault."""
    segments = await world.facts.orphans(MOST_ORPHANS)
    steps = rounds.delete_removed(world.cluster_id, removals, segments, world.steady_ms())

    async def perform(asked: rounds.DeleteObjects | rounds.ForgetSegments) -> None:
        if isinstance(asked, rounds.DeleteObjects):
            with world.counts.attempt(DELETED, "delete"):
                await delete_objects(world.objects, asked)
        else:
            await world.facts.forget(asked.segment_ids)

    await carried_out(steps, perform)


async def remove_leftovers(world: World, leftovers: Leftovers) -> Found:
    """Remove what no fact names and may go. Raises StorageFault."""
    listing = leftovers.begin()
    async for page in world.objects.list(remote_prefix(world.cluster_id)):
        for window in listing.windows(each.key for each in page):
            await _clear(world, listing, window)
    await _clear(world, listing, listing.rest())
    return listing.end()


async def _clear(world: World, listing: Listing, window: Sequence[Folder]) -> None:
    known = await world.facts.known([each.segment_id for each in window])
    for folder in listing.look(window, known, world.steady_ms()):
        listed = [each.key async for page in world.objects.list(folder.prefix) for each in page]
        if listing.goes(folder, listed):
            await world.objects.delete(listed)


async def delete_objects(objects: ObjectStore, asked: rounds.DeleteObjects) -> None:
    """The first one, then the others, then what else its folder has. Raises StorageFault."""
    first, *others = asked.object_keys
    await objects.delete([first])
    await objects.delete(others)
    left = [each.key async for page in objects.list(asked.folder) for each in page]
    if left:
        await objects.delete(left)


class _Round:
    def __init__(self, world: World, leader_epoch: int, led: HostedLog) -> None:
        self._world, self._leader_epoch, self._led = world, leader_epoch, led
        self._files: dict[SegmentId, SegmentFiles] = {}
        self._count = 0
        """Segments of which there are facts."""

    async def run(self, steps: Generator[SealStep, Any, _T]) -> _T:
        try:
            return await carried_out(steps, self._perform, in_thread=self._is_long)
        finally:
            with suppress(ValueError):  # a thread works it out still, and lets go of it then
                steps.close()

    def _is_long(self) -> bool:
        return self._count > MOST_ON_LOOP

    async def _perform(self, asked: SealStep) -> Any:
        call = _CALLS.get(type(asked))
        if call is None:
            raise Bug(f"a round asks for {asked!r}, which nothing performs")
        return await call(self, asked)

    async def _read_facts(self, asked: rounds.ReadFacts) -> Facts:
        world, topic, began_ms = self._world, self._led.topic, self._world.steady_ms()
        epochs = lineage_of(self._led.log, asked.leader_epoch).entries
        facts = await world.facts.lead(asked.key, topic, asked.leader_epoch, epochs)
        world.counts.computation_ms[topic] = world.steady_ms() - began_ms
        await self._knows(facts)
        return facts

    async def _look_at_facts(self, asked: rounds.LookAtFacts) -> Facts | None:
        facts = await self._world.facts.look(asked.key)
        await self._knows(facts or NO_FACTS)
        return facts

    async def _knows(self, facts: Facts) -> None:
        self._count, log = len(facts.segments), self._led.log
        if log.start_is_assumed:
            lineage = lineage_of(log, self._leader_epoch)
            local_start = log.local_start_offset
            log.settle_start(first_offset(facts.segments, lineage, facts.log_start, local_start))
        await self._led.knows(facts)

    async def _look(self, asked: rounds.LookAtLog) -> rounds.LocalView:
        led, epoch = self._led, self._leader_epoch
        segments = await patiently(lambda: local_segments(led.log))
        if not led.stands(epoch):
            raise Deposed(
                f"{led.log.topic_partition}: what this broker was to it in epoch {epoch} is over"
            )
        return rounds.LocalView(
            lineage_of(led.log, epoch),
            tuple(segments),
            led.log.start_offset,
            led.high_watermark,
            led.last_stable_offset,
            led.limits,
            led.local,
            led.copies,
            self._world.steady_ms(),
            self._world.wall_ms(),
        )

    async def _begin_removal(self, asked: rounds.BeginRemoval) -> None:
        await self._world.facts.begin_removal(*asked)

    async def _raise_start(self, asked: rounds.RaiseLogStart) -> None:
        log = self._led.log
        self._change(lambda: log.delete_records_before(min(asked.offset, log.end_offset)))

    def _change(self, call: Callable[[], object]) -> None:
        if not self._led.stands(self._leader_epoch):
            raise Deposed(f"{self._led.log.topic_partition}: its leader has changed")
        try:
            call()
        except StorageFault as fault:
            self._led.failed(fault)
            raise

    async def _delete(self, asked: rounds.DeleteObjects) -> None:
        with self._world.counts.attempt(self._led.topic, "delete"):
            await delete_objects(self._world.objects, asked)

    async def _forget(self, asked: rounds.ForgetSegments) -> None:
        await self._world.facts.forget(asked.segment_ids)

    async def _drop_local(self, asked: rounds.DropLocal) -> None:
        led = self._led
        now_ms = self._world.wall_ms()
        self._change(lambda: led.log.drop_local(asked.offset, now_ms, led.high_watermark))

    async def _describe(self, asked: segment_copy.Describe) -> RemoteSegment | None:
        made_by = Try(SegmentId(self._world.new_id()), self._world.broker_id, asked.leader_epoch)
        found = await patiently(lambda: describe(self._led.log, asked.segment, made_by))
        if found is None:
            return None
        segment, self._files[segment.segment_id] = found
        return segment

    async def _start(self, asked: segment_copy.StartSegment) -> int:
        asked_ms = self._world.steady_ms()
        await self._world.facts.start(asked.segment)
        return asked_ms

    async def _upload(self, asked: segment_copy.UploadFiles) -> None:
        world, segment = self._world, asked.segment
        files, log = self._files.pop(segment.segment_id), self._led.log
        lease = Lease(segment, asked.asked_ms, world.steady_ms)
        upload = Upload(world.objects, world.facts, lease, world.pace, world.steady_ms)
        puts = uploaded(world.cluster_id, self._led.topic, segment, files, lambda: log.cuts)
        with world.counts.attempt(self._led.topic, "copy"):
            await upload.run(puts)
        world.counts.add(self._led.topic, "copy_bytes", segment.byte_size)

    async def _finish(self, asked: segment_copy.FinishSegment) -> None:
        await self._world.facts.finish(asked.segment)

    # Becoming diskless.

    async def _look_at_end(self, _asked: LookAtEnd) -> LogEnd:
        led, active = self._led, self._led.log.active
        return LogEnd(
            led.log.end_offset,
            led.high_watermark,
            led.last_stable_offset,
            0 if active is None else active.size,
            led.is_in_sync,
        )

    async def _roll(self, _asked: RollLog) -> None:
        self._change(lambda: self._led.log.roll(self._world.wall_ms()))

    async def _mark_ready(self, asked: MarkReady) -> None:
        assert self._world.seals is not None
        await self._world.seals.ready(asked.key, asked.migration, asked.leader_epoch)

    async def _seal(self, asked: SealLog) -> None:
        led, log = self._led, self._led.log
        if log.end_offset != asked.end_offset or not led.is_sealed_for(asked.migration):
            raise TryEnded(f"{log.topic_partition}: its log takes records again")
        if not led.stands(asked.leader_epoch):
            raise Deposed(f"{log.topic_partition}: its leader has changed")
        assert self._world.seals is not None
        await self._world.seals.seal(
            Seal(
                asked.key,
                led.topic,
                asked.migration,
                asked.leader_epoch,
                asked.log_start,
                asked.end_offset,
                asked.kept,
                carried(log.producers),
                led.last_producer_id,
            )
        )


async def patiently(ask: Callable[[], _T]) -> _T:
    """What a log says, after what it lacks was read in threads."""
    while True:
        try:
            return ask()
        except ColdRead as cold:
            cold.forget_frames()
            lacking = cold
        await asyncio.to_thread(lacking.warm)


_Call = Callable[[_Round, Any], Awaitable[Any]]
_CALLS: dict[type, _Call] = {
    rounds.ReadFacts: _Round._read_facts,
    rounds.LookAtFacts: _Round._look_at_facts,
    rounds.LookAtLog: _Round._look,
    rounds.BeginRemoval: _Round._begin_removal,
    rounds.RaiseLogStart: _Round._raise_start,
    rounds.DeleteObjects: _Round._delete,
    rounds.ForgetSegments: _Round._forget,
    rounds.DropLocal: _Round._drop_local,
    segment_copy.Describe: _Round._describe,
    segment_copy.StartSegment: _Round._start,
    segment_copy.UploadFiles: _Round._upload,
    segment_copy.FinishSegment: _Round._finish,
    LookAtEnd: _Round._look_at_end,
    RollLog: _Round._roll,
    MarkReady: _Round._mark_ready,
    SealLog: _Round._seal,
}
"""How each step is performed."""
