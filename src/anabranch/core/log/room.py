"""Whether a folder takes records: its state, its reserve, and when it counts as having room again.

What: a folder is ROOMY until its disk refuses something for want of room, and FULL until so much is
free again that its reserve, and as much besides, fits. It is RETURNING while the reserve is
allocated again: what must be written meanwhile makes it FULL, and the reserve is given back once
more. While it is FULL or RETURNING its logs take no records;
what the node has to write down all the same (the copy of the metadata log, checkpoints) finds the
reserve, which is given back when the folder becomes FULL. Why a reserve that is allocated, and no
floor of free bytes: a floor is asked for at every append and not seen by quotas, and other
processes fill a disk beyond it. Why more must be free than was kept: else a folder would change its
state with every batch. Rules kept: the table below; an unknown pair is a bug.

Not here: allocating, giving back (`core/broker/hosting`), who leads instead
(`core/controller/brokers/full_folders.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from anabranch.core.errors import Bug
from anabranch.core.log.files import DiskFull

RESERVE_BYTES = 16 << 20
"""Kept for what is no record: some 100,000 changes of partitions in the metadata log."""
RESERVE_SHARE = 16
"""At most this part of a volume is kept: a small one is there for records too."""
FULL_AT_LEAST_MS = 2_000
"""A folder does not count as having room again sooner: each change costs leaderships."""


class State(Enum):
    """Whether records are taken."""

    ROOMY = "roomy"
    FULL = "full"
    RETURNING = "returning"
    """Full; its reserve is being allocated again."""


class Event(Enum):
    """What was seen of the disk."""

    REFUSED = "refused"
    """It had no room for something."""
    RETURNS = "returning"
    """There seems to be room for the reserve, and as much besides: it is allocated again."""
    RESERVED = "reserved"
    """The reserve is allocated again."""
    NOT_RESERVED = "not reserved"
    """The reserve could not be allocated."""


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.ROOMY, Event.REFUSED): State.FULL,
    (State.FULL, Event.REFUSED): State.FULL,
    (State.FULL, Event.RETURNS): State.RETURNING,
    (State.FULL, Event.RESERVED): State.FULL,
    (State.FULL, Event.NOT_RESERVED): State.FULL,
    (State.RETURNING, Event.REFUSED): State.FULL,
    (State.RETURNING, Event.RESERVED): State.ROOMY,
    (State.RETURNING, Event.NOT_RESERVED): State.FULL,
}


class Room:
    """The room of one folder. `reserve_bytes` is what is kept there for what is no record."""

    __slots__ = ("_since_ms", "is_full", "reserve_bytes", "state")

    def __init__(self, volume_bytes: int = 0) -> None:
        self.reserve_bytes = reserve_bytes(volume_bytes)
        self.state = State.ROOMY
        self.is_full = False
        """Whether records are refused."""
        self._since_ms = 0

    def refused(self, now_ms: int) -> bool:
        """The disk refused something; whether that is news. `now_ms` is a steady clock's."""
        return self._step(Event.REFUSED, now_ms)

    def returns(self, now_ms: int) -> None:
        """The reserve is being allocated again."""
        self._step(Event.RETURNS, now_ms)

    def reserved(self, now_ms: int) -> bool:
        """The reserve is allocated again; whether the folder takes records from now on. Where it
        does not, the reserve was needed meanwhile, and has to be given back."""
        return self._step(Event.RESERVED, now_ms)

    def not_reserved(self, now_ms: int) -> None:
        """The reserve could not be allocated."""
        self._step(Event.NOT_RESERVED, now_ms)

    def may_return(self, free_bytes: int, now_ms: int) -> bool:
        """Whether it is time to allocate the reserve again, with so much free."""
        is_due = self.state is State.FULL and now_ms - self._since_ms >= FULL_AT_LEAST_MS
        return is_due and free_bytes > 2 * self.reserve_bytes

    def refusal(self, what: object) -> DiskFull:
        """Why a record is not taken."""
        return DiskFull(f"{what}: its folder has no space")

    def _step(self, event: Event, now_ms: int) -> bool:
        """Whether records are taken that were not, or the other way round."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise Bug(f"a folder that is {self.state.value} was {event.value}")
        was_full, self.is_full = self.is_full, after is not State.ROOMY
        self.state = after
        if self.is_full is not was_full:
            self._since_ms = now_ms
        return self.is_full is not was_full


def reserve_bytes(volume_bytes: int) -> int:
    """What is kept on a volume of that size."""
    return min(RESERVE_BYTES, volume_bytes // RESERVE_SHARE)
