"""Performs rounds of remote logs on a real log and real stores.

What: each call of `core/remote/rounds.py`. Rules kept: what has to be read from a disk first is
read in a thread; a partition that is no longer led in the round's epoch ends it; a copy is not
FINISHED if its log was cut meanwhile; what an upload in parts has left beside the objects of a
removal goes with them. Not here: when a round is due, decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.remote import rounds, segment_copy
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import Facts, RemoteFacts, TryEnded
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.local_log import Limits
from anabranch.core.remote.segment_files import SegmentFiles, Try, describe, local_segments
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.server.remote.segment_upload import Lease, Upload

_T = TypeVar("_T")


class LedLog(Protocol):
    """A partition that this broker leads, or led when its round began."""

    topic: str
    limits: Limits
    """Of the whole log."""
    local: Limits
    copies: bool

    @property
    def log(self) -> Log:
        """What is on this disk."""

    @property
    def high_watermark(self) -> int:
        """See `Partition`."""

    @property
    def last_stable_offset(self) -> int:
        """See `Partition`."""

    def leads(self, leader_epoch: int) -> bool:
        """Whether this broker still leads in that epoch."""


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


async def perform_round(world: World, leading: rounds.Leading, led: LedLog) -> rounds.Done:
    """One round of a partition. Raises StorageFault where it ended early."""
    return await _Round(world, leading, led).run()


class _Round:
    def __init__(self, world: World, leading: rounds.Leading, led: LedLog) -> None:
        self._world, self._leading, self._led = world, leading, led
        self._files: dict[SegmentId, SegmentFiles] = {}

    async def run(self) -> rounds.Done:
        steps: Generator[rounds.Step, Any, rounds.Done] = rounds.one_round(self._leading)
        answer, fault = None, None
        try:
            while True:
                asked = steps.send(answer) if fault is None else steps.throw(fault)
                answer, fault = None, None
                try:
                    answer = await self._perform(asked)
                except StorageFault as problem:
                    fault = problem
        except StopIteration as end:
            done: rounds.Done = end.value
            return done
        finally:
            steps.close()

    async def _perform(self, asked: rounds.Step) -> Any:
        call = _CALLS.get(type(asked))
        if call is None:
            raise Bug(f"a round asks for {asked!r}, which nothing performs")
        return await call(self, asked)

    async def _read_facts(self, asked: rounds.ReadFacts) -> Facts:
        return await self._world.facts.lead(asked.key, self._led.topic, asked.leader_epoch)

    async def _look(self, asked: rounds.LookAtLog) -> rounds.LocalView:
        led, epoch = self._led, self._leading.leader_epoch
        segments = await patiently(lambda: local_segments(led.log))
        if not led.leads(epoch):
            raise Deposed(f"{led.log.topic_partition}: this broker leads no longer in {epoch}")
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
        log.delete_records_before(min(asked.offset, log.end_offset))

    async def _delete(self, asked: rounds.DeleteObjects) -> None:
        objects, (first, *others) = self._world.objects, asked.object_keys
        await objects.delete([first])
        await objects.delete(others)
        left = [each.key async for page in objects.list(asked.folder) for each in page]
        if left:
            await objects.delete(left)

    async def _forget(self, asked: rounds.ForgetSegments) -> None:
        await self._world.facts.forget(asked.segment_ids)

    async def _drop_local(self, asked: rounds.DropLocal) -> None:
        led = self._led
        led.log.drop_local(asked.offset, self._world.wall_ms(), led.high_watermark)

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
        files = self._files.pop(segment.segment_id)
        lease = Lease(lambda: world.facts.stands(segment), asked.asked_ms, world.steady_ms)
        upload = Upload(
            world.objects, world.cluster_id, self._led.topic, lease, world.pace, world.steady_ms
        )
        await upload.run(segment, files)
        if self._led.log.cuts != files.cuts:
            raise TryEnded(f"{files.log_path}: it was truncated while it was copied")

    async def _finish(self, asked: segment_copy.FinishSegment) -> None:
        await self._world.facts.finish(asked.segment)


def lineage_of(log: Log, leader_epoch: int) -> Lineage:
    """The epochs of a log, with that of its leader, which may have written nothing yet."""
    entries = [EpochStart(*each) for each in log.epochs.entries]
    if not entries or entries[-1].epoch < leader_epoch:
        entries.append(EpochStart(leader_epoch, log.end_offset))
    return Lineage(tuple(entries), leader_epoch)


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
}
"""How each step is performed."""
