"""What a broker does for diskless storage beside serving: manifests and garbage rounds.

What: begins both once the coordinator knows this broker, with its epoch; hears what this broker
committed and what moves anywhere. Rule kept: no request waits for it, and no fault of it ends the
broker. Not here: what is noted (`objects/manifests.py`), what is collected
(`objects/garbage_collector.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.core.diskless.combination import CombiningPace, Maker
from anabranch.core.diskless.combination_rounds import CombiningRounds
from anabranch.core.diskless.garbage import USUAL, GarbageRounds, turn_of
from anabranch.core.diskless.manifests import ManifestLog
from anabranch.core.diskless.rows import Change, Commit, Committed
from anabranch.server.clocks import steady_ms
from anabranch.server.diskless.combiner import Combiner
from anabranch.server.diskless.garbage_collector import Collector
from anabranch.server.diskless.manifests import Manifests

if TYPE_CHECKING:
    from anabranch.core.api.context import Broker
    from anabranch.core.diskless.coordinator import Coordinator
    from anabranch.core.diskless.objects import ObjectStore
    from anabranch.core.types import TopicId


class DisklessUpkeep:
    """Of one registration of a broker."""

    def __init__(
        self, broker: Broker, coordinator: Coordinator, objects: ObjectStore, cluster_id: str
    ) -> None:
        self._broker = broker
        notes = ManifestLog(cluster_id, broker.broker_id, broker.broker_epoch, self._name_of)
        self._manifests = Manifests(objects, notes, steady_ms)
        idle_ms = broker.config.diskless_producer_id_expiration_ms
        pace = USUAL._replace(idle_producer_ms=idle_ms)
        self._collector = Collector(coordinator, objects, cluster_id, GarbageRounds(pace))
        maker = Maker(cluster_id, broker.broker_id, broker.broker_epoch)
        combining = CombiningPace(idle_producer_ms=idle_ms)
        self._combiner = Combiner(coordinator, objects, maker, CombiningRounds(combining))
        self._started_ms: int | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin all."""
        self._started_ms = steady_ms()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._manifests.run()),
            loop.create_task(self._collector.run(self._turn)),
            loop.create_task(self._combiner.run(self._turn)),
        ]

    async def stop(self) -> None:
        """End all; the last manifest is stored if the store answers soon."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._manifests.stop()

    def committed(self, commit: Commit, answer: Committed) -> None:
        """This broker has committed an object."""
        self._manifests.committed(commit, answer)

    def heard(self, changes: Sequence[Change]) -> None:
        """Partitions moved, by whatever broker."""
        self._manifests.heard(changes)

    def statistics(self) -> dict[str, float]:
        """Figures for metrics; an age is there once something has succeeded. That of combining
        counts from the start: its cause may have come with a restart, and an alert waits for it."""
        now_ms, rounds, manifests = steady_ms(), self._collector.rounds, self._manifests
        combined_ms = self._combiner.rounds.succeeded_ms
        ages = {
            "combining_age_seconds": self._started_ms if combined_ms is None else combined_ms,
            "garbage_age_seconds": rounds.succeeded_ms,
            "manifest_age_seconds": manifests.stored_ms,
        }
        return {
            **{name: (now_ms - at_ms) / 1000 for name, at_ms in ages.items() if at_ms is not None},
            "garbage_waiting_objects": rounds.waiting_objects,
            "garbage_deleted_total": rounds.deleted_objects + rounds.deleted_orphans,
            "manifests_deleted_total": self._combiner.rounds.deleted_manifests,
            "foreign_objects": rounds.foreign_objects,
            "unnoted_objects_total": manifests.given_up_objects,
        }

    def _name_of(self, topic_id: TopicId) -> str | None:
        topic = self._broker.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _turn(self) -> tuple[int, int]:
        """Which of the living brokers this one is, and how many there are."""
        return turn_of(self._broker.image, self._broker.broker_id)
