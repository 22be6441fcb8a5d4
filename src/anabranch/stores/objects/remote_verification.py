"""Reads the store of remote segments and a coordinator to check them, or to tell of them.

What: the work of `anabranch remote list`, `verify` and `restore`. Rules kept: verifying changes
nothing, and reads a segment a piece at a time; a coordinator is not restored where diskless records
would then be forgotten. Not here: what is right (`core/remote/segment_check.py`), what is read back
(`remote_segments.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, TypeAlias

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.findings import Finding, Kind
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.objects import ObjectMissing, ObjectStore
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.scan import BadBatch, scan
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.restored_facts import RestoredFacts
from anabranch.core.remote.segment_check import (
    SegmentCheck,
    check_batches,
    check_file,
    place_text,
)
from anabranch.core.remote.segments import RemoteSegment
from anabranch.core.types import ZERO_TOPIC_ID, Buffer
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.objects.remote_segments import read_sidecars, restore_segments
from anabranch.stores.objects.store_check import record_restored

LOGS_A_PAGE = 100


class Verified(NamedTuple):
    """What was checked, and found."""

    cluster_id: str
    partitions: int
    segments: int
    byte_size: int
    objects: int
    findings: list[Finding]


def remote_facts(coordinator: Coordinator) -> RemoteFront:
    """The facts in the coordinator's database."""
    assert isinstance(coordinator, Front)
    return RemoteFront(coordinator)


async def logs_of(coordinator: Coordinator) -> AsyncIterator[HeldRemoteLog]:
    """All remote logs that a coordinator knows, by topic id and partition."""
    facts, after = remote_facts(coordinator), LogKey(ZERO_TOPIC_ID, -1)
    while page := await facts.logs(after, LOGS_A_PAGE):
        after = page[-1].key
        for each in page:
            yield each


async def verify(
    store: ObjectStore, coordinator: Coordinator, cluster_id: str, *, is_whole: bool
) -> Verified:
    """Compare facts and objects; with `is_whole`, read every byte of finished segments."""
    listed, sidecars = await read_sidecars(store, cluster_id)
    check = SegmentCheck(cluster_id, listed, sidecars)
    findings: list[Finding] = []
    partitions = segments = byte_size = 0
    async for log in logs_of(coordinator):
        partitions += 1
        findings += check.look(log)
        for each in log.segments:
            if each.is_finished:
                segments, byte_size = segments + 1, byte_size + each.byte_size
                if is_whole:
                    findings += await _whole(store, cluster_id, log, each)
    findings += check.unknown()
    return Verified(cluster_id, partitions, segments, byte_size, len(listed), findings)


async def _whole(
    store: ObjectStore, cluster_id: str, log: HeldRemoteLog, segment: RemoteSegment
) -> list[Finding]:
    """What is wrong with the bytes of a segment; objects that are missing are named already."""
    place = place_text(log, segment)
    return [
        Finding(Kind.SEGMENT_CHANGED, place, f"object {key}: {problem}")
        for key, problem in await whole_segment(store, cluster_id, segment)
        if not isinstance(problem, ObjectMissing)
    ]


Problem: TypeAlias = BadBatch | ValueError | ObjectMissing


async def whole_segment(
    store: ObjectStore, cluster_id: str, segment: RemoteSegment
) -> list[tuple[str, Problem]]:
    """Read every byte of a segment but its description; the objects that are not what they should
    be, each with why. Raises StorageFault where the store does not answer."""
    folder = segment_folder(cluster_id, segment.key, segment.segment_id)
    batches, *others = upload_names(segment)
    found: list[tuple[str, Problem]] = []
    for name in (batches, *others):
        key = folder + name
        try:
            if name == batches:
                await _check_batches(store, key, segment)
            elif name != SIDECAR:
                [held] = await store.read(key, [(0, await store.size(key))])
                check_file(segment, name, bytes(held))
        except (BadBatch, ValueError, ObjectMissing) as problem:
            found.append((key, problem))
    return found


async def _check_batches(store: ObjectStore, key: str, segment: RemoteSegment) -> None:
    size = await store.size(key)
    held = _Held(store, key, asyncio.get_running_loop())
    await asyncio.to_thread(lambda: check_batches(segment, scan(held, size, check_crc=True)))


class _Held(NamedTuple):
    """An object, for a walk in a thread."""

    store: ObjectStore
    key: str
    loop: asyncio.AbstractEventLoop

    def read_blocking(self, position: int, length: int) -> memoryview:
        """A range of it."""
        return memoryview(
            asyncio.run_coroutine_threadsafe(self._read(position, length), self.loop).result()
        )

    async def _read(self, position: int, length: int) -> Buffer:
        [found] = await self.store.read(self.key, [(position, length)])
        return found


async def restore(store: ObjectStore, coordinator: Coordinator, cluster_id: str) -> RestoredFacts:
    """Give a coordinator without facts those that the store tells of, while no broker runs. Raises
    StorageFault, also where diskless topics have to be restored first."""
    has_objects = False
    async for page in store.list(object_prefix(cluster_id)):
        has_objects = has_objects or bool(page)
    if has_objects and not await coordinator.topics(ZERO_TOPIC_ID, 1):
        raise StorageFault(
            f"{store.url}: it has records of diskless topics, which the coordinator does not know; "
            "run `anabranch diskless restore` first"
        )
    restored = await restore_segments(store, remote_facts(coordinator), cluster_id)
    await record_restored(store, cluster_id, await coordinator.mark())
    return restored
