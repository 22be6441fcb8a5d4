"""Reading a small topic of the mirror's own from where one was to its end.

What: `read_on` gives the committed records that follow known offsets, of all partitions, and the
offsets to go on at. Rules kept: it ends at what was the end when it began; where the log begins
later by now (compaction, retention), it goes on there; a topic that is not there has no records.
Who only looks does not wait long for one, since before the first run there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.committed import Committed
from anabranch.client.fetch import list_offsets
from anabranch.client.ranges import RangeLost, ReadingStalled, ReadOptions, read_range
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, decode_records

READING = ReadOptions(isolation_level=READ_COMMITTED)
SETTLED_SECONDS = 10.0
"""A slot's transaction takes about a second; one that was left behind is ended by its timeout."""
LOOK_SECONDS = 0.02
MISSING_SECONDS = 1.0
"""How long a look waits for a topic: a broker may learn of one a little later than others."""


class Read(NamedTuple):
    """Records of all partitions, those of a partition in order, and where to go on."""

    records: list[Record]
    offsets: dict[int, int]


async def read_on(
    cluster: Cluster, topic: str, offsets: Mapping[int, int], *, settled: bool = False,
    looks: bool = False,
) -> Read:  # fmt: skip
    """What follows `offsets`, partitions that are not in it from their beginning.

    A committed record is not to be read while a transaction is open before it. With `settled` such
    transactions are waited for. Raises ReadingStalled when they last too long. With `looks` a topic
    that is not there is not waited for as long as the cluster's deadline.
    """
    try:
        if looks:
            await cluster.retrying(lambda: cluster.topic(topic), seconds=MISSING_SECONDS)
        ends = await (_settled_ends if settled else _stable_ends)(cluster, topic)
        behind = [each for each, end in ends.items() if end > offsets.get(each, -1)]
        starts = await list_offsets(cluster, topic, EARLIEST, behind) if behind else {}
    except ApiError as fault:
        if fault.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return Read([], {})
    found: list[Record] = []
    for partition in behind:
        start = max(offsets.get(partition, 0), starts[partition])
        found += await _read(cluster, topic, partition, start, ends[partition])
    return Read(found, {**offsets, **ends})


async def _stable_ends(cluster: Cluster, topic: str) -> dict[int, int]:
    return await list_offsets(cluster, topic, LATEST, isolation_level=READ_COMMITTED)


async def _settled_ends(cluster: Cluster, topic: str) -> dict[int, int]:
    """The ends once all transactions have ended that are open now."""
    wanted = await list_offsets(cluster, topic, LATEST)
    deadline = asyncio.get_running_loop().time() + SETTLED_SECONDS
    while True:
        ends = await _stable_ends(cluster, topic)
        if all(ends.get(partition, 0) >= end for partition, end in wanted.items()):
            return ends
        if asyncio.get_running_loop().time() > deadline:
            late = next(each for each, end in wanted.items() if ends.get(each, 0) < end)
            text = f"{topic}-{late}: a transaction is open for more than {SETTLED_SECONDS:g} s."
            raise ReadingStalled(text, ends.get(late, 0))
        await asyncio.sleep(LOOK_SECONDS)


async def _read(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> list[Record]:
    found: list[Record] = []
    try:
        async for part in read_range(cluster, topic, partition, start, end, reading=READING):
            committed = Committed(part.aborted)
            for position, header in walk(part.records):
                if committed.shows(header, part.records, position):
                    records = decode_records(part.records, position)
                    found += [each for each in records if start <= each.offset < end]
    except RangeLost as lost:  # compaction moved the start meanwhile: nothing was there to read
        if lost.resume_at is not None:
            return found + await _read(cluster, topic, partition, lost.resume_at, end)
    return found
