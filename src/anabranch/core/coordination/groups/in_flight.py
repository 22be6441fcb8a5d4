"""Commits of offsets that are in the log and not committed yet, by group and partition.

Why: what is read is what is committed (`shard`), but what is decided about an offset stands in the
log behind every commit that was written before. Rule kept: expiry leaves alone what a commit in
flight is about to replace; a deletion covers what is in flight as well. It belongs to the shard and
not to the group: a group that is deleted and named again has the same log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""Topic and partition index."""


class InFlight:
    """The commits in flight of one shard: as many as its writes that wait for replicas."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Place, int]] = {}

    def begin(self, group_id: str, places: Iterable[Place]) -> None:
        """A commit of these is on its way."""
        counts = self._counts.setdefault(group_id, {})
        for place in places:
            counts[place] = counts.get(place, 0) + 1

    def end(self, group_id: str, places: Iterable[Place]) -> None:
        """It is committed, or was refused."""
        counts = self._counts[group_id]
        for place in places:
            counts[place] -= 1
            if not counts[place]:
                del counts[place]
        if not counts:
            del self._counts[group_id]

    def of(self, group_id: str) -> Collection[Place]:
        """Where a group has a commit in flight."""
        return self._counts.get(group_id, ())

    def groups(self) -> list[str]:
        """The groups that have one, also those that are no more."""
        return list(self._counts)
