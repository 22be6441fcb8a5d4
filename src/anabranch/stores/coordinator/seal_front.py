"""Seals for the loop: `Seals` over an open coordinator. Not here: SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.tiering.seals import Seals
from anabranch.stores.coordinator.front import Front, Lane

if TYPE_CHECKING:
    from collections.abc import Collection

    from anabranch.core.diskless.rows import LogKey
    from anabranch.core.tiering.seals import Progress, Seal
    from anabranch.core.types import TopicId


class SealFront(Seals):
    """`Seals`, in the database of a coordinator."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def ready(self, key: LogKey, migration: int, leader_epoch: int) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.seals.ready(key, migration, leader_epoch))

    async def seal(self, seal: Seal) -> None:
        await self._front.call(Lane.UPKEEP, lambda on: on.seals.seal(seal))

    async def progress(
        self, topic_id: TopicId, migration: int, broker_ids: Collection[int]
    ) -> Progress:
        return await self._front.call(
            Lane.UPKEEP, lambda on: on.seals.progress(topic_id, migration, broker_ids)
        )
