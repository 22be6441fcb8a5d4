"""Moving a partition's replicas: add those that come, wait for them, then remove those that go.

What: the three states of a move. `begun` says what the lists are while it runs: the target, then
those that leave. `settled` ends it as soon as every replica that stays is in sync, or every one
that comes where nobody leaves: from then on the move needs nobody. `reverted` takes it back. Rule
kept: nothing is removed before what replaces it is in sync, so a move by itself never takes a
partition below the replicas that it had; and a move is nothing but these lists, so it survives
every controller. Beyond Kafka: a move that replaces one under way is taken back to what was there
before both, since whoever was coming stays named as that; and in the order that they had.

Source: Kafka's PartitionReassignmentReplicas and PartitionReassignmentRevert, KIP-455. Not here:
which replicas should move (placement), requests (`core/api/p45_alter_partition_reassignments.py`),
elections (`core/controller/partitions/elections.py`, which settles a move with every change).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.metadata.image import PartitionImage

Row = tuple[int, ...]


class Move(NamedTuple):
    """A partition's replica list, and which of it is coming and which is going."""

    replicas: Row
    adding: Row = ()
    removing: Row = ()

    @classmethod
    def of(cls, partition: PartitionImage) -> Move:
        """What a partition is in the middle of."""
        return cls(partition.replicas, partition.adding, partition.removing)

    @property
    def is_running(self) -> bool:
        """Whether somebody still comes or goes."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> Row:
        """The replicas when all is done."""
        return _without(self.replicas, self.removing)

    @property
    def coming(self) -> Row:
        """Those that copy; of a move that replaced another, `adding` may have more."""
        return _without(self.adding, self.removing)

    @property
    def needed(self) -> Row:
        """Who must be in sync for it to end."""
        return self.target if self.removing else self.adding

    @property
    def original(self) -> Row:
        """The replicas that were there before; their order may differ (`former`)."""
        return _without(self.replicas, self.adding)


def begun(replicas: Sequence[int], target: Sequence[int], coming: Sequence[int] = ()) -> Move:
    """The lists while the replicas `replicas`, of which `coming` were being added, give way to
    `target`. A change of order alone is done at once."""
    adding = {each for each in target if each not in replicas}.union(coming)
    removing = [each for each in replicas if each not in target]
    return Move((*target, *sorted(removing)), tuple(sorted(adding)), tuple(sorted(removing)))


def settled(move: Move, isr: Row) -> tuple[Move, Row]:
    """The move and the ISR after whoever goes has gone; both as they were while it is too early."""
    target, remaining = move.target, _without(isr, move.removing)
    if not move.is_running or not remaining or not set(move.needed) <= set(remaining):
        return move, isr
    return Move(target), remaining


def former(partition: PartitionImage, move: Move) -> Row:
    """The order that the replicas had before they began to move, which `move` goes on with; empty
    where none is under way, or its lists keep that order."""
    order = partition.former or Move.of(partition).original
    return order if move.is_running and move.original != order else ()


def reverted(partition: PartitionImage, *, elr_enabled: bool) -> tuple[Move, Row, bool]:
    """The move and the ISR without the replicas that were coming, and whether that may lose
    records: none of those that stay is known to have them all. Beyond Kafka: nobody comes to be in
    sync by this, and who is eligible, or was the last known leader, keeps the records too."""
    replicas = partition.former or Move.of(partition).original
    holders = partition.isr
    if elr_enabled:
        holders = (*partition.isr, *partition.elr) or partition.last_known_elr
    isr = _without(partition.isr, partition.adding)
    return Move(replicas), isr, set(holders).isdisjoint(replicas)


def _without(row: Row, gone: Row) -> Row:
    return tuple(each for each in row if each not in gone)
