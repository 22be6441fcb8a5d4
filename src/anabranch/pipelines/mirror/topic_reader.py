"""Reading a small topic of the mirror's own from where one was to its end.

What: `read_on` gives the committed records that follow known offsets, of all partitions, and the
offsets to go on at. Rules kept: it ends at what was the end when it began; where the log begins
later by now (compaction, retention), it goes on there; a topic that is not there has no records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.committed import Committed
from anabranch.client.fetch import list_offsets
from anabranch.client.ranges import RangeLost, ReadOptions, read_range
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, decode_records

READING = ReadOptions(isolation_level=READ_COMMITTED)


class Read(NamedTuple):
    """Records of all partitions, those of a partition in order, and where to go on."""

    records: list[Record]
    offsets: dict[int, int]


async def read_on(cluster: Cluster, topic: str, offsets: Mapping[int, int]) -> Read:
    """What follows `offsets`, partitions that are not in it from their beginning."""
    try:
        ends = await list_offsets(cluster, topic, LATEST, isolation_level=READ_COMMITTED)
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
