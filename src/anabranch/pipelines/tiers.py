"""Scrubbing of tiers: segments in the object store are read, and checked as replicas are compared.

What: the driver asks brokers up to where diskless partitions are tiered, lists the store's segments
with their descriptions, and asks where partitions begin; tasks read each segment whole: checksums
and offsets of its batches, both indexes, transactions, producers and epochs. Rules kept: brokers
are asked, never the coordinator's database; of a diskless partition each tiered offset must be in a
segment; a finding of the listing counts once a second listing has it, too, since tiering, copies
and retention go on; what retention removes meanwhile is told as not checked. Not here: objects that
are not tiered yet, and facts of the coordinator (`anabranch diskless verify`, `remote verify`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.fetch import list_offsets
from anabranch.core.diskless.claim import CLAIM_KEY, check_claim
from anabranch.core.diskless.objects import ObjectMissing, ObjectStore
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import SIDECAR, place_of, segment_folder
from anabranch.core.remote.lineage import Span, joined
from anabranch.core.remote.restored_facts import restored_facts
from anabranch.core.remote.segments import RemoteSegment
from anabranch.core.types import EARLIEST, LATEST_TIERED, TopicId, topic_id_text
from anabranch.pipelines.comparison import CORRUPT, EXPIRED, MISSING, Compared, Difference
from anabranch.pipelines.offset_ranges import Place
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.remote_segments import read_sidecars
from anabranch.stores.objects.remote_verification import whole_segment

NOWHERE = -1
"""The offset of what is wrong with a whole folder of the store."""


class TierPiece(NamedTuple):
    """What one task checks: a segment."""

    storage_url: str
    cluster_id: str
    topic: str
    segment: RemoteSegment

    @property
    def place(self) -> Place:
        """Its partition."""
        return Place(self.topic, self.segment.key.partition)

    @property
    def name(self) -> str:
        """What it is called in notes."""
        segment = self.segment
        of_topic = topic_id_text(segment.key.topic_id)
        span = f"{segment.start_offset}-{segment.end_offset}"
        return f"{self.place}/{span} of {of_topic} in segment {segment.segment_id.hex()}"


class Tiers(NamedTuple):
    """What is to be checked, and what was found before."""

    pieces: list[TierPiece]
    found: list[tuple[Place, Difference]]


async def look_at_tiers(bootstrap: str, storage_url: str, topics: Mapping[str, bool]) -> Tiers:
    """The segments of some topics, each with whether it is diskless. Raises ApiError,
    ConnectionLost, and StorageFault for a store that is not that of the cluster."""
    objects = await open_objects(storage_url)
    try:
        async with Cluster(bootstrap) as cluster:
            ids = {(await cluster.topic(each)).topic_id: each for each in topics}
            if not ids:
                return Tiers([], [])
            await _check_owner(objects, cluster.cluster_id)
            diskless = [name for name, is_diskless in topics.items() if is_diskless]
            ends = {name: await _offsets(cluster, name, LATEST_TIERED) for name in diskless}
            logs, wrong = await _listed(objects, cluster.cluster_id, ids)
            if wrong:
                logs, again = await _listed(objects, cluster.cluster_id, ids)
                wrong = [each for each in again if each in wrong]
            starts = {name: await _offsets(cluster, name, EARLIEST) for name in diskless}
            found = [*wrong, *_gaps(logs, starts, ends)]
            return Tiers(list(_pieces(storage_url, cluster.cluster_id, logs)), found)
    finally:
        await objects.close()


async def _check_owner(objects: ObjectStore, cluster_id: str) -> None:
    try:
        held = (await objects.read(CLAIM_KEY, [(0, await objects.size(CLAIM_KEY))]))[0]
    except ObjectMissing:
        raise StorageFault(
            f"{objects.url}: there is no object {CLAIM_KEY}: it is not the store of cluster "
            f"{cluster_id}; give that of its brokers"
        ) from None
    check_claim(held, cluster_id, objects.url)


async def _offsets(cluster: Cluster, name: str, timestamp: int) -> dict[int, int]:
    return await list_offsets(cluster, name, timestamp, ready_only=True)


Logs = dict[Place, HeldRemoteLog]
Wrong = list[tuple[Place, Difference]]


async def _listed(
    objects: ObjectStore, cluster_id: str, ids: Mapping[TopicId, str]
) -> tuple[Logs, Wrong]:
    """The segments that the store describes, and what is wrong with descriptions and sizes."""
    listed, sidecars = await read_sidecars(objects, cluster_id)
    by_log: dict[LogKey, dict[str, int]] = {}
    for object_key, size in listed.items():
        place = place_of(object_key)
        if place is not None and place.key.topic_id in ids:
            by_log.setdefault(place.key, {})[object_key] = size
    logs, wrong = Logs(), Wrong()
    for key, held in sorted(by_log.items()):
        place_ = Place(ids[key.topic_id], key.partition)
        own = {each: sidecars[each] for each in held if each in sidecars}
        restored = restored_facts(held, own)
        wrong += ((place_, _damage(NOWHERE, CORRUPT, each)) for each in restored.findings)
        for log in restored.logs:
            logs[place_] = log._replace(topic=place_.topic)
    return logs, wrong


def _damage(offset: int, kind: str, sentence: str) -> Difference:
    return Difference(offset, kind, (), f"the tier: {sentence}")


def _gaps(
    logs: Logs, starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]
) -> Iterator[tuple[Place, Difference]]:
    """Offsets of diskless partitions that are tiered, and in no segment."""
    for topic, of_topic in ends.items():
        for partition, last in of_topic.items():
            place = Place(topic, partition)
            start = starts[topic].get(partition)
            if start is not None:
                for first, end in _lacking(logs.get(place), start, last + 1):
                    offsets = f"{first} to {end - 1}"
                    why = f"no segment in the store has the tiered offsets {offsets}"
                    yield place, _damage(first, MISSING, why)


def _lacking(log: HeldRemoteLog | None, start: int, end: int) -> Iterator[Span]:
    segments = () if log is None else log.segments
    spans = joined(Span(*each[2:4]) for each in segments if each.is_finished)
    for span in spans:
        if start < min(span.first, end):
            yield Span(start, min(span.first, end))
        start = max(start, span.end)
    if start < end:
        yield Span(start, end)


def _pieces(storage_url: str, cluster_id: str, logs: Logs) -> Iterator[TierPiece]:
    for place, log in sorted(logs.items()):
        for each in sorted(log.segments, key=lambda segment: segment.start_offset):
            if each.is_finished:
                yield TierPiece(storage_url, cluster_id, place.topic, each)


def check_piece(piece: TierPiece) -> Compared:
    """A task: read a segment whole. Raises StorageFault where the store does not answer."""
    return asyncio.run(_check_piece(piece))


async def _check_piece(piece: TierPiece) -> Compared:
    segment = piece.segment
    objects = await open_objects(piece.storage_url)
    found = Compared(bytes_read=segment.byte_size)
    try:
        for name, problem in await whole_segment(objects, piece.cluster_id, segment):
            found.tell(_told(segment, name, problem))
        if found.differing and not await _is_there(objects, piece):
            why = "the segment was removed while it was checked"
            return Compared(found.bytes_read, 0, [_damage(segment.start_offset, EXPIRED, why)])
    finally:
        await objects.close()
    return found


def _told(segment: RemoteSegment, name: str, problem: Exception) -> Difference:
    span = f"of offsets {segment.start_offset} to {segment.end_offset - 1}"
    if isinstance(problem, ObjectMissing):
        return _damage(segment.start_offset, MISSING, f"object {name} {span} is missing")
    return _damage(segment.start_offset, CORRUPT, f"object {name} {span}: {problem}")


async def _is_there(objects: ObjectStore, piece: TierPiece) -> bool:
    """Whether the segment is still described: a removal begins with that."""
    segment = piece.segment
    folder = segment_folder(piece.cluster_id, segment.key, segment.segment_id)
    try:
        await objects.size(folder + SIDECAR)
    except ObjectMissing:
        return False
    return True
