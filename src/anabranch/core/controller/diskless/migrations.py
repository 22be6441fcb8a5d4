"""The controller's part when a classic topic becomes diskless: from phase to phase.

What: the keeper of the coordinator's rows asks how many partitions of a topic are ready and sealed,
and tells it here (`heard`); by that the topic goes on: all ready, then leaders take no records; all
sealed, then one batch of records makes it diskless. Rules kept: what was heard counts for the
migration that it is about; the batch is atomic, and gives each partition a new leader epoch, so
that no broker goes on as the leader of a log that has ended; sealing that lasts too long is given
up, and records are taken again, under a new number: seals of before do not count any more; the
metadata keeps where each partition became diskless, whatever becomes of the coordinator.
Source: decision 102. Not here: how it begins
(`core/controller/topics/migration.py`), seals (`core/tiering/seals.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.membership import is_active
from anabranch.core.controller.diskless.leaders import change_diskless
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.diskless.migration import PHASE, Phase, Step, phase_in
from anabranch.core.diskless.topics import BEGINS, DISKLESS
from anabranch.core.metadata.image import RESOURCE_TOPIC, TopicImage
from anabranch.core.sentences import number_of
from anabranch.core.tiering.seals import Progress
from anabranch.core.wire.metadata_records import ConfigRecord, PartitionChangeRecord

if TYPE_CHECKING:
    from anabranch.core.controller.cluster_state import ClusterState
    from anabranch.core.types import TopicId
    from anabranch.core.wire.metadata_records import MetadataRecord

LOOK_MS = 50
"""Between two looks while a topic becomes diskless: its producers may be waiting."""
MOST_SEALING_MS = 30_000
"""How long a topic takes no records at most; producers give up after two minutes by default."""
NOTHING = Progress(0, 0)


class MigrationDuty:
    """What is known of topics that become diskless. One a controller term."""

    def __init__(self, now_ms: int) -> None:
        self.due_ms = now_ms
        self._told: dict[TopicId, tuple[int, Progress]] = {}
        self._sealing_since_ms: dict[tuple[str, Phase], int] = {}

    def heard(self, topic_id: TopicId, migration: int, progress: Progress) -> None:
        """How many partitions of a topic have come how far in a migration."""
        self._told[topic_id] = migration, progress

    def due(self, state: ClusterState, now_ms: int) -> Result[None] | None:
        """What is to be written down now."""
        if now_ms < self.due_ms or not state.migrating:
            return None
        self.due_ms = now_ms + LOOK_MS
        phases = {
            (name, phase) for name in state.migrating if (phase := _phase(state, name)) is not None
        }
        self._sealing_since_ms = {
            each: self._sealing_since_ms.get(each, now_ms)
            for each in phases
            if each[1].step is Step.SEALING
        }
        for name, phase in sorted(phases, key=lambda each: (each[0], each[1].migration)):
            topic = state.image.topic(name)
            result = None if topic is None else self._step(state, topic, phase, now_ms)
            if result is not None:
                return result
        return None

    def _step(
        self, state: ClusterState, topic: TopicImage, phase: Phase, now_ms: int
    ) -> Result[None] | None:
        migration, progress = self._told.get(topic.topic_id, (-1, NOTHING))
        if migration != phase.migration:
            progress = NOTHING
        count = len(topic.partitions)
        if phase.step is Step.PREPARING:
            if progress.ready < count:
                return None
            return _phase_result(topic, phase._replace(step=Step.SEALING), "all are ready")
        if progress.sealed >= count and not any(map(_is_moving, topic.partitions.values())):
            return _diskless(state, topic, dict(progress.ends))
        since_ms = self._sealing_since_ms.get((topic.name, phase), now_ms)
        if now_ms - since_ms < MOST_SEALING_MS:
            return None
        again = Phase(Step.PREPARING, state.image.next_offset)
        why = (
            f"only {progress.sealed} of {number_of(count, 'partition')} were sealed within "
            f"{MOST_SEALING_MS} ms, so records are taken again"
        )
        return _phase_result(topic, again, why)


def _phase(state: ClusterState, name: str) -> Phase | None:
    return phase_in(state.image.config(RESOURCE_TOPIC, name))


def _is_moving(partition: object) -> bool:
    return bool(getattr(partition, "adding", ()) or getattr(partition, "removing", ()))


def _phase_result(topic: TopicImage, phase: Phase, why: str) -> Result[None]:
    reason = Reason(
        Code.MIGRATION_STEPPED,
        f"topic {topic.name} becomes diskless: {phase.step.value}; {why}",
        {"topic": topic.name, "phase": str(phase)},
    )
    return Result((_config(topic.name, PHASE, str(phase)),), None, (reason,))


def _diskless(state: ClusterState, topic: TopicImage, ends: Mapping[int, int]) -> Result[None]:
    """All that makes a topic diskless whose logs have ended."""
    begins = ",".join(str(ends.get(index, 0)) for index in sorted(topic.partitions))
    records: list[MetadataRecord] = [
        _config(topic.name, DISKLESS, "true"), _config(topic.name, PHASE, None),
        _config(topic.name, BEGINS, begins),
    ]  # fmt: skip
    records += _partitions(state, topic)
    reason = Reason(
        Code.MIGRATION_STEPPED,
        f"topic {topic.name} is diskless: {number_of(len(topic.partitions), 'partition')} of it "
        "are sealed, and older records are in remote segments",
        {"topic": topic.name, "phase": "diskless"},
    )
    return Result(tuple(records), None, (reason,))


def _partitions(state: ClusterState, topic: TopicImage) -> Iterator[PartitionChangeRecord]:
    def is_living(broker_id: int) -> bool:
        return is_active(state.image, broker_id)

    for index, partition in sorted(topic.partitions.items()):
        made = change_diskless(topic.topic_id, index, partition, partition.replicas, is_living)
        record = made or PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
        if record.leader == PartitionChangeRecord().leader:
            record.leader = partition.leader  # a new epoch, by the same leader
        yield record


def _config(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic, name=name, value=value)
