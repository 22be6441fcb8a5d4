"""Who leads a diskless partition, and the one record that says so.

What: every replica of a diskless partition is in sync at all times, dead ones too, since all of
them read the same object storage. So the in-sync replicas are the assigned ones, nobody is merely
eligible to lead, and any living replica may lead without loss: the present leader first, then the
order of the list. A change of its replicas is done with the record that begins it, because no bytes
move. Rule kept: a record is made only where something is not as this says, so partitions that were
written in another way come right with their next change. Source: decision 0059.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

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
    row = tuple(replicas)
    leader = _leader(partition.leader, row, acceptable)
    changes: dict[str, Any] = {}
    if row != partition.replicas:
        changes["replicas"] = list(row)
    if partition.directories != nowhere(len(row)):
        changes["directories"] = list(nowhere(len(row)))
    if row != partition.isr:
        changes["isr"] = list(row)
    if leader != partition.leader:
        changes["leader"] = leader
    if partition.recovery_state != RECOVERED:
        changes["leader_recovery_state"] = RECOVERED
    _forget_the_rest(changes, partition)
    if not changes:
        return None
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, **changes)


@cache
def nowhere(replicas: int) -> tuple[bytes, ...]:
    """The folders of so many replicas that lie in none."""
    return (UNASSIGNED_DIRECTORY,) * replicas


def _forget_the_rest(changes: dict[str, Any], partition: PartitionImage) -> None:
    """Nobody is merely eligible, and nobody comes or goes."""
    if partition.adding:
        changes["adding_replicas"] = []
    if partition.removing:
        changes["removing_replicas"] = []
    if partition.elr:
        changes["eligible_leader_replicas"] = []
    if partition.last_known_elr:
        changes["last_known_elr"] = []


def _leader(present: int, replicas: Sequence[int], acceptable: Callable[[int], bool]) -> int:
    if present in replicas and acceptable(present):
        return present
    return next(filter(acceptable, replicas), NO_LEADER)
