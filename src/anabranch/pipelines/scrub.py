"""Scrubbing: every replica of every partition is read and compared, and differences are told.

What: the driver looks up replicas and bounds, cuts partitions into ranges by bytes, and hands them
to tasks; a task reads a range from every broker that has a replica, as any consumer may, and
compares it byte by byte. Compacted topics are compared by record (compacted.py). Rules kept: only
what lies below the high watermark is compared; nothing is written to the cluster; a replica that
could not be compared is named, and never counted as equal; what is noted counts only for the same
topic, offsets and brokers, and only when all of them were compared.

With a store, the segments of remote logs and of tiered diskless topics are checked, too (tiers.py).
Not here: what of diskless topics is not tiered, of which brokers have no replicas, and repairing. A
replica that differs is made anew by moving it away and back, or by removing its folder while its
broker is stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.client.admin import ResourceKind, describe_configs
from anabranch.client.cluster import Cluster, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.core.diskless.topics import DISKLESS
from anabranch.core.errors import ApiError
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.settings.setting import is_true
from anabranch.core.types import EARLIEST, LATEST, ZERO_TOPIC_ID, TopicId, topic_id_text
from anabranch.core.wire.messages.metadata import MetadataResponseTopic
from anabranch.pipelines.comparison import NOT_COMPARED, UNREACHABLE, Compared, Difference, compare
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.offset_ranges import Place, log_sizes
from anabranch.pipelines.replicas import Replica, ReplicaReader
from anabranch.pipelines.tiers import TierPiece, Tiers, check_piece, look_at_tiers
from anabranch.pipelines.waves import Notes, Pace, waves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_BYTES = 128 << 20
"""What a task reads of each replica: a second or so, and seldom repeated after a kill."""
MOST_TOLD = 1000


class Piece(NamedTuple):
    """What one task compares."""

    bootstrap: str
    topic: str
    partition: int
    brokers: tuple[int, ...]
    start: int
    until: int
    is_first: bool = True
    topic_id: bytes = ZERO_TOPIC_ID

    @property
    def name(self) -> str:
        """What it is called in notes."""
        place = Place(self.topic, self.partition)
        return noted_name(place, self.topic_id, self.brokers, self.start, self.until)


class Partition(NamedTuple):
    """A partition to be compared."""

    place: Place
    brokers: tuple[int, ...]
    offline: tuple[int, ...]
    start: int
    until: int
    size_bytes: int
    is_compacted: bool
    topic_id: bytes = ZERO_TOPIC_ID
    has_leader: bool = True
    """Without one nobody knows what is acknowledged, and all replicas count as offline."""


def noted_name(
    place: Place, topic_id: bytes, brokers: Sequence[int], start: int, until: int
) -> str:
    """What the replicas on some brokers of a range of offsets are called in notes: another topic of
    the same name, and a replica that was away, have not been compared."""
    of_topic = topic_id_text(TopicId(topic_id))
    return f"{place}/{start}-{until} of {of_topic} on {','.join(map(str, sorted(brokers)))}"


@dataclass(slots=True)
class Report:
    """What a scrub found."""

    partitions: int = 0
    replicas: int = 0
    segments: int = 0
    """Of tiers."""
    bytes_read: int = 0
    differing: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)
    not_compared: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every replica was compared and none differs."""
        return not self.differing and not self.not_compared

    def add(self, place: Place, found: dict[str, Any]) -> None:
        """Take over what a task found."""
        self.bytes_read += found["bytes_read"]
        self.differing += found["differing"]
        for each in found["differences"]:
            told = {"topic": place.topic, "partition": place.partition, **each}
            kept = self.not_compared if each["kind"] in NOT_COMPARED else self.differences
            if len(kept) < MOST_TOLD:
                kept.append(told)


def scrub(
    spark: SparkSession, bootstrap: str, topics: Sequence[str] | None = None,
    *, storage_url: str = "", notes_path: Path | None = None, range_bytes: int = RANGE_BYTES,
    tell: Callable[[str], None] = lambda _line: None,
) -> Report:  # fmt: skip
    """Compare all replicas of some topics, or of all that are neither internal nor diskless; with
    the URL of the cluster's object store, also check the segments that it has of topics.

    `bootstrap` is as in `kafka.bootstrap.servers`; executors must reach every broker. With
    `notes_path` a scrub that was ended goes on where it stopped; one that compared everything
    begins anew. `tell` hears of progress. Raises ApiError, ConnectionLost, NotesFault, StorageFault
    for a store that is not the cluster's, and PipelineFault for a diskless topic without a store.
    """
    begin = time.monotonic()
    cluster_id, partitions, kinds = asyncio.run(look(bootstrap, topics))
    if topics and not storage_url:
        _refuse_diskless(kinds)
    report = Report(len(partitions), sum(len(each.brokers) for each in partitions))
    for each in partitions:
        for broker_id in each.offline:
            why = f"broker {broker_id} is not there; what it has of {each.place} was not compared"
            if not each.has_leader:
                why = f"{each.place} has no leader; what broker {broker_id} has was not compared"
            report.add(each.place, _told(Compared(0, 0, [_away(each.start, broker_id, why)])))
    job = {"job": "scrub", "cluster_id": cluster_id, "topics": sorted(topics or ())}
    notes = Notes(notes_path, job)
    try:
        _compare_ranges(spark, bootstrap, partitions, range_bytes, notes, report, tell)
        for each in partitions:
            if each.is_compacted and each.brokers:
                _compare_compacted(spark, bootstrap, each, notes, report, tell)
        if storage_url:
            tiers = asyncio.run(look_at_tiers(bootstrap, storage_url, kinds))
            _check_tiers(spark, tiers, notes, report, tell)
        if not report.not_compared:
            notes.finish()
    finally:
        notes.close()
    report.seconds = time.monotonic() - begin
    return report


def _away(offset: int, broker_id: int, why: str) -> Difference:
    return Difference(offset, UNREACHABLE, (broker_id,), why)


def _compare_ranges(
    spark: SparkSession, bootstrap: str, partitions: Sequence[Partition], range_bytes: int,
    notes: Notes, report: Report, tell: Callable[[str], None],
) -> None:  # fmt: skip
    pieces = [
        piece
        for each in partitions
        if not each.is_compacted
        for piece in pieces_of(bootstrap, each, range_bytes)
    ]
    left = [piece for piece in pieces if piece.name not in notes.done]
    for piece in pieces:
        if piece.name in notes.done:
            report.add(Place(piece.topic, piece.partition), notes.done[piece.name])
    pace = Pace(len(left), "ranges", tell)
    for wave in waves(spark, left, compare_piece):
        for piece, found in wave:
            _note(notes, piece.name, found)
            report.add(Place(piece.topic, piece.partition), found)
        pace.advance(len(wave), report.bytes_read)


def _compare_compacted(
    spark: SparkSession, bootstrap: str, partition: Partition, notes: Notes, report: Report,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    from anabranch.pipelines.compacted import compare_records

    place, brokers, start, until = (
        partition.place, partition.brokers, partition.start, partition.until
    )  # fmt: skip
    name = noted_name(place, partition.topic_id, brokers, start, until)
    found = notes.done.get(name)
    if found is None:
        found = _told(compare_records(spark, bootstrap, place, brokers, start, until))
        _note(notes, name, found)
    report.add(place, found)
    tell(f"{partition.place} compared by key")


def _refuse_diskless(kinds: Mapping[str, bool]) -> None:
    for name, is_diskless in kinds.items():
        if is_diskless:
            raise PipelineFault(
                f"Topic {name!r} is diskless: brokers have no replicas of its records to compare. "
                "Name the store with --config or --storage-url, so that its tiered segments are "
                "checked, or leave it out; `anabranch diskless verify` checks all its records."
            )


def _check_tiers(
    spark: SparkSession, tiers: Tiers, notes: Notes, report: Report, tell: Callable[[str], None]
) -> None:
    report.segments = len(tiers.pieces)
    for place, difference in tiers.found:
        report.add(place, _told(Compared(0, 1, [difference])))
    for piece in tiers.pieces:
        if piece.name in notes.done:
            report.add(piece.place, notes.done[piece.name])
    left = [piece for piece in tiers.pieces if piece.name not in notes.done]
    pace = Pace(len(left), "segments", tell)
    for wave in waves(spark, left, check_segment):
        for piece, found in wave:
            _note(notes, piece.name, found)
            report.add(piece.place, found)
        pace.advance(len(wave), report.bytes_read)


def check_segment(piece: TierPiece) -> dict[str, Any]:
    """A task: read a segment of a tier, and check it."""
    return _told(check_piece(piece))


def _note(notes: Notes, name: str, found: Mapping[str, Any]) -> None:
    """Note what a task found, unless it is to be done again: some replica was not compared."""
    if not any(each["kind"] in NOT_COMPARED for each in found["differences"]):
        notes.note(name, found)


def pieces_of(bootstrap: str, partition: Partition, range_bytes: int) -> Iterator[Piece]:
    """The ranges of a partition, each of about `range_bytes` of a replica."""
    length = partition.until - partition.start
    count = max(1, min(-(-partition.size_bytes // range_bytes), length)) if length else 0
    for number in range(count):
        start, until = (partition.start + length * each // count for each in (number, number + 1))
        topic, index = partition.place
        yield Piece(
            bootstrap, topic, index, partition.brokers, start, until, number == 0,
            partition.topic_id,
        )  # fmt: skip


def compare_piece(piece: Piece) -> dict[str, Any]:
    """A task: read a range from every replica, and compare."""
    return asyncio.run(_compare_piece(piece))


async def _compare_piece(piece: Piece) -> dict[str, Any]:
    async with Cluster(piece.bootstrap) as cluster:
        readers = [
            ReplicaReader(cluster, Replica(piece.topic, piece.partition, broker_id, piece.until))
            for broker_id in piece.brokers
        ]
        return _told(await compare(readers, piece.start, piece.until, from_middle=piece.is_first))


def _told(found: Compared) -> dict[str, Any]:
    return {
        "bytes_read": found.bytes_read,
        "differing": found.differing,
        "differences": [
            {**each._asdict(), "brokers": list(each.brokers)} for each in found.differences
        ],
    }


async def look(
    bootstrap: str, topics: Sequence[str] | None
) -> tuple[str, list[Partition], dict[str, bool]]:
    """The cluster's id, the partitions with their replicas and bounds, but those of diskless
    topics, and of each topic whether it is diskless."""
    async with Cluster(bootstrap) as cluster:
        names = topics or sorted(
            each.name or ""
            for each in (await cluster.metadata(None)).topics
            if not each.is_internal
        )
        found: list[Partition] = []
        kinds: dict[str, bool] = {}
        for name in names:
            configs = await describe_configs(cluster, ResourceKind.TOPIC, name)
            settings = {each.name: each.value or "" for each in configs}
            kinds[name] = is_true(settings.get(DISKLESS))
            if not kinds[name]:
                is_compacted = "compact" in settings.get("cleanup.policy", "")
                found += await _look_at(cluster, name, is_compacted=is_compacted)
        return cluster.cluster_id, found, kinds


async def _look_at(cluster: Cluster, name: str, *, is_compacted: bool) -> list[Partition]:
    topic, starts, ends = await _bounds(cluster, name, READ_COMMITTED if is_compacted else 0)
    places = [Place(name, each.partition_index) for each in topic.partitions]
    sizes = await log_sizes(cluster, places)
    found = []
    for each in sorted(topic.partitions, key=lambda part: part.partition_index):
        index = each.partition_index
        has_leader = index in ends
        there = [broker_id for broker_id in each.replica_nodes if broker_id >= 0]
        away = each.offline_replicas if has_leader else there
        offline = tuple(broker_id for broker_id in away if broker_id >= 0)
        brokers = tuple(broker_id for broker_id in there if broker_id not in offline)
        place = Place(name, index)
        found.append(
            Partition(
                place, brokers, offline, starts.get(index, 0), ends.get(index, 0),
                sizes.get(place, 0), is_compacted, bytes(topic.topic_id), has_leader,
            )
        )  # fmt: skip
    return found


async def _bounds(
    cluster: Cluster, name: str, isolation_level: int
) -> tuple[MetadataResponseTopic, dict[int, int], dict[int, int]]:
    """A topic, and where the logs of its partitions begin and end; nothing of one without a leader,
    as of one that has just lost it."""
    for is_last in (False, True):
        topic = await cluster.topic(name)
        led = [each.partition_index for each in topic.partitions if each.leader_id >= 0]
        try:
            starts = await list_offsets(cluster, name, EARLIEST, led)
            ends = await list_offsets(cluster, name, LATEST, led, isolation_level=isolation_level)
            return topic, starts, ends
        except (ApiError, ConnectionLost) as fault:
            if is_last or not may_help(fault):
                raise
    raise AssertionError("the last attempt returns or raises")
