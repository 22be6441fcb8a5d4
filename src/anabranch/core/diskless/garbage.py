"""Garbage rounds: when a broker looks for objects that nothing needs, and what came of it.

What: rounds of bounded steps. A round has the coordinator mark objects whose lease is over, deletes
those that have waited for the grace, and tells the coordinator. Rarely a listing of the store finds
objects that the coordinator does not know: those of puts that ended after their object was
forgotten. Rules kept: brokers take turns; an object that has lost its last row stays for the grace,
since readers may hold its coordinates; an object is deleted without the coordinator's word in no
case; one that a listing finds is deleted only if this coordinator's database named it and it is
old, so that a database that was lost or made anew costs no object. Not here: the
steps of a round (`garbage_rounds.py`), leases (`commit.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.diskless.keys import mark_of, object_id
from anabranch.core.diskless.objects import Listed

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage

MARK_AT_ONCE = 1000
DELETE_AT_ONCE = 1000
"""A step holds up the coordinator for well below a second. S3 deletes as many in one request, and a
folder syncs each of its 256 folders once for all of them."""
STEP_PAUSE_MS = 20
"""Between steps of a round, in which commits have their turn: with it still tens of thousands of
rows a second, which is more than commits make."""
MOST_COUNTED = 100_000
"""Objects that wait are counted up to here: some milliseconds in an index."""


class Pace(NamedTuple):
    """How often, and after how long."""

    round_ms: int = 60_000
    """Between rounds of the cluster: brokers take turns."""
    grace_ms: int = 120_000
    """Twice what a reader may hold coordinates for without hearing of a change, and read then."""
    retry_ms: int = 10_000
    """After a round that failed."""
    list_ms: int = 6 * 3_600_000
    """Between listings of the store by one broker."""
    orphan_ms: int = 3_600_000
    """Age of an unknown object that is deleted; any put has ended long before. The store's clock
    says when it was put: it may differ from ours by less than that."""
    idle_producer_ms: int = 604_800_000


USUAL = Pace()


class GarbageRounds:
    """One broker's turns. Times are of a steady clock, but for `is_orphan`."""

    def __init__(self, pace: Pace = USUAL) -> None:
        self.pace = pace
        self._due_ms: int | None = None
        self._list_due_ms: int | None = None
        self.succeeded_ms: int | None = None
        """When the last round ended without a fault."""
        self.deleted_objects = 0
        self.deleted_orphans = 0
        self.foreign_objects = 0
        """Objects that the last listing found and that another coordinator's database named."""
        self.waiting_objects = 0
        """Objects that were to be deleted and were not yet, at the last step of a round; at most
        MOST_COUNTED."""

    def due_ms(self, now_ms: int, turn: int, brokers: int) -> int:
        """When the next round begins: this broker is the `turn`-th of so many, from 0 on."""
        if self._due_ms is None:
            self._due_ms = now_ms + self.pace.round_ms * (turn + 1)
        return min(self._due_ms, now_ms + self.pace.round_ms * max(1, brokers))

    def ended(self, now_ms: int, brokers: int) -> None:
        """A round did all that it was to."""
        self.succeeded_ms = now_ms
        self._due_ms = now_ms + self.pace.round_ms * max(1, brokers)

    def failed(self, now_ms: int) -> None:
        """Coordinator or store were away."""
        self._due_ms = now_ms + self.pace.retry_ms

    def lists_now(self, now_ms: int, turn: int, brokers: int) -> bool:
        """Whether this round also lists the store; the first time only after a while, since a
        cluster that restarts often would list all day."""
        share_ms = self.pace.list_ms // max(1, brokers)
        if self._list_due_ms is None:
            self._list_due_ms = now_ms + share_ms * (turn + 1)
        if now_ms < self._list_due_ms:
            return False
        self._list_due_ms = now_ms + self.pace.list_ms
        return True

    def is_old(self, listed: Listed, wall_ms: int) -> bool:
        """Whether an object may be asked about: it is old enough to be an orphan."""
        return listed.modified_ms + self.pace.orphan_ms <= wall_ms


def turn_of(image: MetadataImage, broker_id: int) -> tuple[int, int]:
    """Which of the living brokers one is, from 0 on, and how many there are; behind all of them
    while it is not among them."""
    living = sorted(each for each, broker in image.brokers.items() if not broker.fenced)
    turn = living.index(broker_id) if broker_id in living else len(living)
    return turn, max(1, len(living))


def is_ours(key: str, mark: str) -> bool:
    """Whether this coordinator's database named an object."""
    return object_id(key) >= 0 and mark_of(key) == mark
