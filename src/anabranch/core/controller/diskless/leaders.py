"""Who leads a diskless partition, and the one record that says so.

What: every replica of a diskless partition is in sync at all times, dead ones too, since all of
them read the same object storage. So the in-sync replicas are the assigned ones, nobody is merely
eligible to lead, and any living replica may lead without loss: the present leader first, then the
order of the list. A change of its replicas is done with the record that begins it, because no bytes
move. Rule kept: a record is made only where something is not as this says, so partitions that were
written in another way come right with their next change. Source: decision 0059.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.metadata.image import RECOVERED, UNASSIGNED_DIRECTORY, PartitionImage
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.core.types import TopicId


def change_diskless(
    topic_id: TopicId,
    index: int,
    partition: PartitionImage,
    replicas: Sequence[int],
    acceptable: Callable[[int], bool],
) -> PartitionChangeRecord | None:
    """The record that gives a diskless partition these replicas, and a living leader if there is
    one; None: no change."""
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    row = list(replicas)
    leader = _leader(partition.leader, row, acceptable)
    nowhere = (UNASSIGNED_DIRECTORY,) * len(row)
    if tuple(row) != partition.replicas:
        record.replicas = row
    if nowhere != partition.directories:
        record.directories = list(nowhere)
    if tuple(row) != partition.isr:
        record.isr = row
    if leader != partition.leader:
        record.leader = leader
    if partition.recovery_state != RECOVERED:
        record.leader_recovery_state = RECOVERED
    _forget_the_rest(record, partition)
    return None if _is_empty(record) else record


def _forget_the_rest(record: PartitionChangeRecord, partition: PartitionImage) -> None:
    """Nobody is merely eligible, and nobody comes or goes."""
    if partition.adding:
        record.adding_replicas = []
    if partition.removing:
        record.removing_replicas = []
    if partition.elr:
        record.eligible_leader_replicas = []
    if partition.last_known_elr:
        record.last_known_elr = []


def _is_empty(record: PartitionChangeRecord) -> bool:
    return record == PartitionChangeRecord(
        partition_id=record.partition_id, topic_id=record.topic_id
    )


def _leader(present: int, replicas: list[int], acceptable: Callable[[int], bool]) -> int:
    living = [each for each in replicas if acceptable(each)]
    if present in living:
        return present
    return living[0] if living else NO_LEADER
