"""Claims of compaction jobs for the loop: `CompactionClaims` over an open coordinator.

What: each call becomes one of `CompactionTables`, in a lane in which it holds up no commit where an
engine has several connections. Not here: SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from anabranch.core.tiering.compaction_claims import CompactionClaims
from anabranch.stores.coordinator.front import Front, Lane

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey, LogState
    from anabranch.core.remote.segments import RemoteSegment, SegmentId
    from anabranch.core.tiering.compaction_claims import Swap
    from anabranch.core.tiering.compaction_plan import Tiered


class CompactionFront(CompactionClaims):
    """`CompactionClaims`, in the database of a coordinator."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def claim_compaction(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> str:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.compaction.claim_compaction(claim_id, owner, broker_ids)
        )

    async def tiered(self, keys: Sequence[LogKey]) -> list[Tiered | None]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.compaction.tiered(keys))

    async def start_compacted(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        await self._front.call(
            Lane.UPKEEP, lambda on: on.compaction.start_compacted(claim_id, topic, segment)
        )

    async def compacted_stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.compaction.compacted_stands(claim_id, segment_id)
        )

    async def swap(
        self, claim_id: int, key: LogKey, leader_epoch: int, swaps: Sequence[Swap]
    ) -> LogState:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.compaction.swap(claim_id, key, leader_epoch, swaps)
        )

    async def release_compaction(self, claim_id: int) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.compaction.release_compaction(claim_id))
