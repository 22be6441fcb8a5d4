"""Claims of tiering jobs for the loop: `TieringClaims` over an open coordinator.

What: each call becomes one of `TieringTables`, in a lane in which it holds up no commit where an
engine has several connections. Not here: SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from anabranch.core.tiering.claims import TieringClaims
from anabranch.stores.coordinator.compaction_front import CompactionFront
from anabranch.stores.coordinator.front import Lane

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey, LogState
    from anabranch.core.remote.segments import RemoteSegment, SegmentId
    from anabranch.core.tiering.claims import Aged, Claim
    from anabranch.core.tiering.lag import PartitionLag
    from anabranch.core.tiering.plan import Eligible


class TieringFront(CompactionFront, TieringClaims):
    """`TieringClaims`, in the database of a coordinator."""

    async def claim(self, claim_id: int, owner: str, broker_ids: Collection[int]) -> Claim:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.tiering.claim(claim_id, owner, broker_ids)
        )

    async def aged(self, claim_id: int, wanted: Sequence[Eligible]) -> list[Aged | None]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.tiering.aged(claim_id, wanted))

    async def lags(self, wanted: Sequence[Eligible], most_rows: int) -> list[PartitionLag | None]:
        return await self._front.call(Lane.UPKEEP, lambda on: on.tiering.lags(wanted, most_rows))

    async def start(self, claim_id: int, topic: str, segment: RemoteSegment) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.tiering.start(claim_id, topic, segment))

    async def stands(self, claim_id: int, segment_id: SegmentId) -> bool:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.tiering.stands(claim_id, segment_id)
        )

    async def finish(self, key: LogKey, leader_epoch: int, segment_id: SegmentId) -> LogState:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.tiering.finish(key, leader_epoch, segment_id)
        )

    async def release(self, claim_id: int) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.tiering.release(claim_id))
