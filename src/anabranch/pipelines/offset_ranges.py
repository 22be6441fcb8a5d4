"""Which offsets are read, and in which pieces.

What: finds the topics and partitions of a job, turns bounds into offsets, and splits ranges so that
a task reads about `maxBytesPerPartition` bytes: by the share of the log that a range has, as
brokers tell the sizes of logs. Why by bytes: one partition of a topic may hold most of it. Rule
kept: a split never changes what is read; where sizes are not told, ranges stay whole unless options
split them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple, TypeVar

from pyspark.sql.datasource import InputPartition

from anabranch.client.cluster import Cluster, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.sentences import number_of
from anabranch.core.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from anabranch.core.wire.messages.metadata import MetadataResponseTopic
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.options import (
    EARLIEST,
    LATEST,
    MOST_PARTITIONS,
    Bound,
    SourceOptions,
)

T = TypeVar("T")

SPLIT_OFFSETS_MIN = 64 << 10
"""Sizes are asked for only where so many offsets are read: fewer are a task's work anyway."""
SHOWN = 5


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads: the offsets from `start`, below `until`."""

    topic: str
    partition: int
    topic_id: bytes
    start: int
    until: int
    from_middle: bool = False
    """Whether a batch that begins before `start` is part of it (with `shape=batches`)."""


class Unreachable(Exception):
    """The cluster did not answer; the text says what was tried."""


class Found(NamedTuple):
    """The partitions of a job, and the ids of their topics."""

    places: list[Place]
    topic_ids: dict[str, bytes]


Offsets = dict[Place, int]


def ask(options: SourceOptions, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Run `work` with a connection to the cluster, again where that can help."""

    async def attempt() -> T:
        cluster = Cluster(
            options.bootstrap_servers,
            client_id=options.client_id,
            security=options.security,
            deadline_seconds=options.deadline_seconds,
        )
        async with cluster:
            return await work(cluster)

    async def attempts() -> T:
        for left in range(options.retries, -1, -1):
            try:
                return await attempt()
            except ConnectionLost as fault:
                if not left:
                    raise Unreachable(
                        f"No broker of {options.bootstrap_servers} answers: {fault}. Check the "
                        "option 'kafka.bootstrap.servers', and that the brokers run."
                    ) from None
            await asyncio.sleep(options.retry_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    return asyncio.run(attempts())


async def find(
    cluster: Cluster, options: SourceOptions, *, missing_ok: bool = False,
    known: Set[str] = frozenset(),
) -> Found:  # fmt: skip
    """The partitions that the options select, sorted. Raises ApiError for a topic that is not
    there, unless `missing_ok`. `known` are topics that were found before."""
    if options.pattern is not None:
        topics = await _matching(cluster, options, known)
        if not topics and not missing_ok:
            raise OptionError(
                f"No topic matches 'subscribePattern' {options.pattern!r}; it must match the whole "
                "name, as in 'orders-.*'."
            )
    else:
        topics = []
        for name in options.assigned or options.topics:
            topic = await _topic(cluster, options, name)
            if topic is not None:
                topics.append(topic)
            elif not missing_ok:
                raise OptionError(
                    f"There is no topic {name!r} at {options.bootstrap_servers}. Create it, or "
                    "correct the option 'subscribe' or 'assign'."
                )
    places = [
        Place(topic.name or "", each.partition_index)
        for topic in topics
        for each in topic.partitions
    ]
    if options.assigned is not None:
        places = _assigned(places, options.assigned, missing_ok=missing_ok)
    return Found(sorted(places), {each.name or "": bytes(each.topic_id) for each in topics})


async def _matching(
    cluster: Cluster, options: SourceOptions, known: Set[str]
) -> list[MetadataResponseTopic]:
    """The topics that match the pattern; a broker may not know all of them at once."""
    known = {each for each in known if selects(options, Place(each, 0))}
    for left in range(options.retries, -1, -1):
        found = (await cluster.metadata(None)).topics
        there = [
            each
            for each in found
            if not each.is_internal and selects(options, Place(each.name or "", 0))
        ]
        if not left or known <= {each.name for each in there}:
            break
        await asyncio.sleep(options.retry_interval_ms / 1000)
    return there


def selects(options: SourceOptions, place: Place) -> bool:
    """Whether the options are for a partition, where it is there."""
    if options.pattern is not None:
        return re.fullmatch(options.pattern, place.topic) is not None
    if options.assigned is not None:
        return place.partition in options.assigned.get(place.topic, ())
    return place.topic in options.topics


async def _topic(
    cluster: Cluster, options: SourceOptions, name: str
) -> MetadataResponseTopic | None:
    """A topic, None when it is not there: a new one may not be known everywhere at once."""
    for left in range(options.retries, -1, -1):
        try:
            return await cluster.topic(name)
        except ApiError as fault:
            if not may_help(fault):
                raise
            if not left and fault.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        await asyncio.sleep(options.retry_interval_ms / 1000 if left else 0)
    return None


def _assigned(
    there: list[Place], assigned: Mapping[str, list[int]], *, missing_ok: bool
) -> list[Place]:
    wanted = {Place(topic, each) for topic, parts in assigned.items() for each in parts}
    missing = sorted(wanted - set(there))
    if missing and not missing_ok:
        raise OptionError(f"Option 'assign' names {named(missing)}, which is not there.")
    return [each for each in there if each in wanted]


async def offsets_at(
    cluster: Cluster, options: SourceOptions, places: Iterable[Place], timestamp: int,
    *, isolation_level: int | None = None,
) -> Offsets:  # fmt: skip
    """The offsets for a timestamp in ms, or for LATEST or EARLIEST, of some partitions; -1 stands
    for none. `isolation_level` goes over that of the options."""
    if isolation_level is None:
        isolation_level = options.reading.isolation_level
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    found: Offsets = {}
    for topic, partitions in by_topic.items():
        offsets = await list_offsets(
            cluster, topic, timestamp, partitions, isolation_level=isolation_level
        )
        found |= {Place(topic, each): offset for each, offset in offsets.items()}
    return found


async def resolve(
    cluster: Cluster, options: SourceOptions, places: list[Place], bound: Bound, side: str
) -> Offsets:
    """The offset of each partition at a bound. Raises OptionError; `side` is starting or ending."""
    if bound.special is not None:
        return await offsets_at(cluster, options, places, bound.special)
    if bound.timestamp is not None:
        timestamps = dict.fromkeys(places, bound.timestamp)
    elif bound.timestamps is not None:
        timestamps = _of_all(bound.timestamps, places, f"{side}OffsetsByTimestamp")
    else:
        return await _given(cluster, options, places, bound, side)
    found: Offsets = {}
    for timestamp in sorted(set(timestamps.values())):
        asked = [each for each in places if timestamps[each] == timestamp]
        found |= await offsets_at(cluster, options, asked, timestamp)
    late = [each for each in places if found[each] < 0]
    if late and side == "starting" and not options.latest_without_timestamp:
        raise OptionError(
            f"No record of {named(late)} has a timestamp of {timestamps[late[0]]} ms or later. "
            "Start earlier, or set 'startingOffsetsByTimestampStrategy' to 'latest'."
        )
    return found | await offsets_at(cluster, options, late, LATEST)


async def _given(
    cluster: Cluster, options: SourceOptions, places: list[Place], bound: Bound, side: str
) -> Offsets:
    given = _of_all(bound.offsets or {}, places, f"{side}Offsets")
    for special in (LATEST, EARLIEST):
        asked = [each for each in places if given[each] == special]
        given |= await offsets_at(cluster, options, asked, special)
    return given


def _of_all(given: Mapping[str, Mapping[int, int]], places: list[Place], name: str) -> Offsets:
    """Numbers for exactly the partitions that are read, as Spark's source asks for."""
    numbers = {
        Place(topic, each): number
        for topic, parts in given.items()
        for each, number in parts.items()
    }
    if missing := sorted(set(places) - set(numbers)):
        raise OptionError(f"Option {name!r} says nothing of {named(missing)}; name all partitions.")
    if extra := sorted(set(numbers) - set(places)):
        raise OptionError(f"Option {name!r} names {named(extra)}, which is not read.")
    return numbers


def named(places: Iterable[Place]) -> str:
    """Some partitions in words."""
    texts = [str(each) for each in places]
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more


# Pieces.


async def pieces(
    cluster: Cluster, options: SourceOptions, ranges: list[OffsetRange]
) -> list[OffsetRange]:
    """The ranges, split into what single tasks read."""
    ranges = [each for each in ranges if each.start < each.until]
    if not ranges:
        return []
    density: dict[Place, float] = {}
    if sum(each.until - each.start for each in ranges) >= SPLIT_OFFSETS_MIN:
        density = await bytes_an_offset(cluster, options, ranges)
    counts = piece_counts(
        [each.until - each.start for each in ranges],
        [density.get(Place(each.topic, each.partition), 0.0) for each in ranges],
        partition_bytes=options.partition_bytes,
        max_records=options.max_records,
        min_partitions=options.min_partitions,
    )
    return [piece for each, count in zip(ranges, counts) for piece in cut(each, count)]


def piece_counts(
    lengths: list[int], densities: list[float], *, partition_bytes: int, max_records: int = 0,
    min_partitions: int = 0,
) -> list[int]:  # fmt: skip
    """How many pieces each range becomes; `lengths` are in offsets, `densities` in bytes each.

    Raises OptionError where they were more than Spark can plan.
    """
    counts = []
    for length, density in zip(lengths, densities):
        count = -(-int(length * density) // partition_bytes)
        if max_records:
            count = max(count, -(-length // max_records))
        counts.append(min(max(count, 1), length))
    if sum(counts) > max(MOST_PARTITIONS, len(lengths)):
        raise OptionError(
            f"This query would have {number_of(sum(counts), 'task')}; it has at most "
            f"{MOST_PARTITIONS:,}. Raise 'maxRecordsPerPartition' or 'maxBytesPerPartition'."
        )
    by_length = [
        (-length / count, each) for each, (length, count) in enumerate(zip(lengths, counts))
    ]
    heapify(by_length)
    for _ in range(min(min_partitions, sum(lengths)) - sum(counts)):
        longest = by_length[0][1]
        counts[longest] += 1
        heapreplace(by_length, (-lengths[longest] / counts[longest], longest))
    return counts


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """A range in `count` pieces of nearly the same length, without gap or overlap."""
    length = whole.until - whole.start
    edges = [whole.start + length * each // count for each in range(count + 1)]
    return [
        OffsetRange(
            whole.topic, whole.partition, whole.topic_id, start, until,
            whole.from_middle and start == whole.start,
        )
        for start, until in pairwise(edges)
    ]  # fmt: skip


async def bytes_an_offset(
    cluster: Cluster, options: SourceOptions, ranges: list[OffsetRange]
) -> dict[Place, float]:
    """Bytes of the log for each offset, where brokers tell; empty where they refuse."""
    places = sorted({Place(each.topic, each.partition) for each in ranges})
    try:
        sizes = await log_sizes(cluster, places)
        first = await offsets_at(cluster, options, places, EARLIEST)
        end = await offsets_at(cluster, options, places, LATEST)
    except (ApiError, ConnectionLost):
        return {}
    return {
        each: sizes[each] / (end[each] - first[each])
        for each in places
        if each in sizes and end[each] > first[each]
    }


async def log_sizes(cluster: Cluster, places: list[Place]) -> dict[Place, int]:
    """The size in bytes of the largest replica of each partition, as those brokers tell it that can
    be reached."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]
    )
    sizes: dict[Place, int] = {}
    for broker_id in sorted(cluster.brokers):
        try:
            answer = await cluster.send_to(broker_id, request)
        except ConnectionLost:
            continue
        for folder in answer.results:
            for topic in folder.topics:
                for each in topic.partitions:
                    place = Place(topic.name, each.partition_index)
                    sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes
