"""What a compaction job and the batch coordinator tell each other, through brokers.

What: the calls of `CompactionClaims`, which SQLite and PostgreSQL implement. Rules kept: one job at
a time holds the claim, which is another one than that of tiering jobs; a job that takes it over
ends all tries of the one before in the same transaction, and so does a job that lets it go of its
own; segments take the place of others in one transaction for a whole pass, or none does. Not here:
SQL, what is worth a pass (`compaction_plan.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.tiering.compaction_plan import Tiered


class Swap(NamedTuple):
    """A segment, and the ones that it takes the place of."""

    segment_id: SegmentId
    replaced: tuple[SegmentId, ...]


class CompactionClaims(Protocol):
    """Each call may raise CoordinatorAway and StorageFault, and is one transaction."""

    async def claim_compaction(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> str:
        """Take the claim, or renew it; the id of the store in which the coordinator's objects lie.
        Raises ClaimHeld, and StorageFault where one of the cluster's brokers does not know of
        compaction."""

    async def tiered(self, keys: Sequence[LogKey]) -> list[Tiered | None]:
        """What is known of partitions; None for one that has no row. No claim is needed."""

    async def start_compacted(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        """A try begins. Raises Deposed, ClaimHeld and TryEnded."""

    async def compacted_stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        """Whether a try may go on."""

    async def swap(
        self, claim_id: int, key: LogKey, leader_epoch: int, swaps: Sequence[Swap]
    ) -> LogState:
        """Tries whose objects are all stored become FINISHED, and those that they were made of are
        removed. Raises Deposed, ClaimHeld, and TryEnded where one of these is no longer FINISHED.
        Made again, it answers the same."""

    async def release_compaction(self, claim_id: int) -> None:
        """The job is done: its tries that are not FINISHED are removed, and another one may
        begin."""
