"""The remote segments of a diskless partition as its readers see them.

Rule kept: every finished segment counts. What was tiered has one leader epoch; the segments of a
topic that was classic have those of its leaders, and only such as its last leader's log agreed with
were kept when it became diskless. Not here: how a tail is read (`core/remote/tail.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.partition.tail import Tail
from anabranch.core.remote.cache import RemoteCache
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.segments import EpochStart, RemoteSegment
from anabranch.core.remote.tail import RemoteTail


def lineage_of(segments: Iterable[RemoteSegment]) -> Lineage:
    """The leader epochs of which finished segments tell, each from its first offset on."""
    starts: dict[int, int] = {}
    for segment in segments:
        for epoch, start in segment.leader_epochs if segment.is_finished else ():
            starts[epoch] = min(start, starts.get(epoch, start))
    entries = tuple(EpochStart(epoch, starts[epoch]) for epoch in sorted(starts))
    return Lineage(entries, entries[-1].epoch if entries else 0)


def tiered_tail(
    cluster_id: str, cache: RemoteCache, facts: Facts | None, start_offset: int
) -> Tail:
    """What facts tell of a partition that begins at an offset; None: there are none."""
    tail = RemoteTail(cluster_id, cache)
    segments = () if facts is None else facts.segments
    tail.take(segments, lineage_of(segments), start_offset)
    return tail
