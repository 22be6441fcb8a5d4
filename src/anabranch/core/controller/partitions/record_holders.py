"""Which brokers have the records of a partition that nobody leads, and how it is said of them.

What: `holders` are those of whom one must be back before the partition is led again without a loss.
Rule kept: it is whom elections look at, in their order (`elections.py`): the in-sync replicas, else
the eligible leader replicas, else who led last. Plans of moves, `anabranch explain` and `anabranch
cluster status` all say it with these words. Not here: diskless partitions, whose records no broker
has.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.sentences import named

Row = tuple[int, ...]


def holders(isr: Row, elr: Row, last_known_elr: Row, replicas: Row) -> Row:
    """Who has the records of a partition without a leader; any replica may, where the controller
    knows of nobody."""
    return isr or elr or last_known_elr or replicas


def awaited(down: Collection[int]) -> str:
    """Brokers that are down, as what is waited for."""
    return f"{named(down, 'broker')} to be back"
