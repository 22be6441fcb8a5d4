"""Tasks of compaction: the keys of a group of segments, and the segment that takes its place.

What: `keys_task` reads a group and gives a hash and the newest offset of each of its keys;
`rewrite_task` reads it again and makes the new segment, once it is known which of these offsets are
the newest of all. Rules kept: a hash has 128 bits and is keyed with a secret of the job, so that
neither chance nor a producer makes two keys equal, which would lose a record; a group whose keys
were not all told is not written; the coordinator knows of a try before the store does. Why in
memory: segments are bounded, and the JVM sees none of their bytes. Not here: what a record's fate
is (`core/tiering`), when new segments take the place of old ones (`compaction.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS
from anabranch.core.log.indexes import AbortedRange, InvalidIndex, decode_aborted
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
from anabranch.core.types import Buffer, TopicId
from anabranch.pipelines.tiering_task import GIVEN_UP, AtLeader, Place, Try
from anabranch.stores.objects.engines import open_objects

HASH_BYTES = 16
READS_AT_ONCE = 8
"""Objects of one task."""
ALL_TOLD = -1
"""In the place of an offset: all keys of this group were told."""
UNREAD = -2
"""In the same place: they could not be read."""

PlacedSegment = tuple[bytes, int, int, int, bool, tuple[tuple[int, int], ...]]
"""Id, start and end offset, size, whether something was aborted, leader epochs."""


class GroupTask(NamedTuple):
    """Neighbouring segments that become one."""

    bootstrap: str
    storage_url: str
    cluster_id: str
    claim_id: int
    secret: bytes
    number: int
    """Among the groups of a round."""
    log: int
    """The number of the partition among those of a round."""
    topic_id: bytes
    topic: str
    partition: int
    leader_id: int
    segments: tuple[PlacedSegment, ...]
    mark: tuple[int, int]
    now_ms: int
    delete_retention_ms: int
    forgets: bool
    before: PlacedSegment | None
    """The segment before the group, in the pass."""
    last: PlacedSegment
    """Of the pass."""
    aborted: tuple[PlacedSegment, ...]
    """Those of the pass in which something was aborted."""

    @property
    def name(self) -> str:
        """Of the partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> LogKey:
        """As the coordinator knows it."""
        return LogKey(TopicId(self.topic_id), self.partition)

    @property
    def byte_size(self) -> int:
        """Of its segments."""
        return sum(each[3] for each in self.segments)

    @property
    def is_last(self) -> bool:
        """Whether it is the pass's last one, whose segment says how far the pass went."""
        return self.segments[-1] == self.last


def keys_task(task: GroupTask) -> tuple[bytes, list[int]]:
    """The hashes of the keys of a group, side by side, and their newest offsets. Raises
    StorageFault."""

    async def work() -> dict[bytes, int]:
        objects = await open_objects(task.storage_url)
        try:
            return keys_of(*await _read(objects, task))
        finally:
            await objects.close()

    found = asyncio.run(work())
    return hashed(found, task.secret), list(found.values())


def hashed(keys: Iterable[bytes], secret: bytes) -> bytes:
    """Hashes of keys, side by side."""
    return b"".join([blake2b(each, digest_size=HASH_BYTES, key=secret).digest() for each in keys])


def rewrite_task(task: GroupTask, newest: set[int], alone: set[int]) -> dict[str, Any]:
    """Make and store the segment of a group: what was done, for the driver. `newest` are those of
    its offsets that are the newest of their keys, `alone` those whose keys no other group has."""
    return asyncio.run(_rewritten(task, newest, alone))


async def _rewritten(task: GroupTask, newest: set[int], alone: set[int]) -> dict[str, Any]:
    done: dict[str, Any] = {"group": task.number, "segment": "", "fault": "", "bytes": 0}
    objects = await open_objects(task.storage_url)
    try:
        built, is_same = await _built(objects, task, newest, alone)
        if is_same and not task.is_last:
            return {**done, "bytes": task.byte_size}
        async with Cluster(task.bootstrap) as cluster:
            place = Place(task.topic_id, task.topic, task.partition, task.leader_id)
            leader, request = (
                AtLeader(cluster, place),
                partial(compact_request, task.claim_id, built.segment),
            )
            await Try(objects, leader, task.cluster_id, request, built, finishes=False).make()
    except ApiError as fault:
        is_given_up = fault.code in GIVEN_UP or fault.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {**done, "fault": str(fault), "is_given_up": is_given_up}
    except (StorageFault, ConnectionLost) as fault:
        return {**done, "fault": str(fault)}
    finally:
        await objects.close()
    return {**done, "segment": built.segment.segment_id.hex(), "bytes": built.segment.byte_size}


async def _built(
    objects: ObjectStore, task: GroupTask, newest: set[int], alone: set[int]
) -> tuple[BuiltSegment, bool]:
    """The new segment, and whether it is as the only old one."""
    group, files = await _read(objects, task)
    if ALL_TOLD not in newest:
        keys_of(group, files)  # where that fails again, it says why
        raise StorageFault("not all keys of its segments could be read; run the job again")
    live = Live(newest - {ALL_TOLD}, alone if task.forgets else set())
    built = compacted(group, files, live, SegmentId(uuid.uuid4().bytes))
    content = built.files[offset_name(group.start_offset, LOG)][0]
    return built, len(files.logs) == 1 and bytes(content) == bytes(files.logs[0])


async def _read(objects: ObjectStore, task: GroupTask) -> tuple[Group, Files]:
    """A group and its files."""
    turn = asyncio.Semaphore(READS_AT_ONCE)

    async def read(placed: PlacedSegment, name: str, size: int = -1) -> Buffer:
        object_key = segment_folder(task.cluster_id, task.key, SegmentId(placed[0])) + name
        async with turn:
            length = size if size >= 0 else await objects.size(object_key)
            return (await objects.read(object_key, [(0, length)]))[0] if length else b""

    own = task.segments
    ends = {each[2]: each for each in (*own, task.last, *([task.before] if task.before else []))}
    logs = await asyncio.gather(*(read(each, offset_name(each[1], LOG), each[3]) for each in own))
    snapshots = await asyncio.gather(
        *(read(each, offset_name(end, SNAPSHOT)) for end, each in ends.items())
    )
    aborted = await asyncio.gather(
        *(read(each, offset_name(each[1], TRANSACTIONS)) for each in task.aborted)
    )
    epochs = await read(own[-1], LEADER_EPOCHS)
    group = Group(
        [_segment(task.key, each) for each in own],
        Mark(*task.mark),
        task.now_ms,
        task.delete_retention_ms,
        task.before[5][-1][0] if task.before else -1,
        sorted(_aborted(aborted), key=lambda each: each.first_offset),
    )
    return group, Files(logs, dict(zip(ends, snapshots, strict=True)), epochs)


def _aborted(encoded: Iterable[Buffer]) -> Iterable[AbortedRange]:
    for each in encoded:
        try:
            yield from decode_aborted(bytes(each))
        except InvalidIndex as fault:
            raise StorageFault(f"a transaction index is damaged: {fault}") from None


def _segment(key: LogKey, placed: PlacedSegment) -> RemoteSegment:
    segment_id, start, end, size, has_aborted, epochs = placed
    return RemoteSegment(
        SegmentId(segment_id), key, start, end, -1, tuple(EpochStart(*each) for each in epochs),
        size, -1, -1, has_aborted,
    )  # fmt: skip
