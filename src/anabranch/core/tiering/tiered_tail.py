"""The remote segments of a diskless partition as its readers see them.

Rule kept: all records of a diskless partition have one leader epoch, so that every finished segment
counts. Not here: how a tail is read (`core/remote/tail.py`).
"""

from __future__ import annotations

from anabranch.core.diskless.assembly import LEADER_EPOCH
from anabranch.core.partition.tail import Tail
from anabranch.core.remote.cache import RemoteCache
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.segments import EpochStart
from anabranch.core.remote.tail import RemoteTail

LINEAGE = Lineage((EpochStart(LEADER_EPOCH, 0),), LEADER_EPOCH)


def tiered_tail(
    cluster_id: str, cache: RemoteCache, facts: Facts | None, start_offset: int
) -> Tail:
    """What facts tell of a partition that begins at an offset; None: there are none."""
    tail = RemoteTail(cluster_id, cache)
    tail.take(() if facts is None else facts.segments, LINEAGE, start_offset)
    return tail
