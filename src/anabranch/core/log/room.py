"""Whether a folder takes records: its state, its reserve, and when it counts as having room again.

What: a folder is ROOMY until its disk refuses something for want of room, and FULL until so much is
free again that its reserve, and as much besides, fits. While it is FULL its logs take no records;
what the node has to write down all the same (the copy of the metadata log, checkpoints) finds the
reserve, which is given back when the folder becomes FULL. Why a reserve that is allocated, and no
floor of free bytes: a floor is asked for at every append and not seen by quotas, and other
processes fill a disk beyond it. Why more must be free than was kept: else a folder would change its
state with every batch. Rules kept: the table below; an unknown pair is a bug.

Not here: allocating, giving back (`server/room.py`), who leads instead
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


class Event(Enum):
    """What was seen of the disk."""

    REFUSED = "refused"
    """It had no room for something."""
    RESERVED = "reserved"
    """The reserve is allocated again, and there is room besides."""


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.ROOMY, Event.REFUSED): State.FULL,
    (State.FULL, Event.REFUSED): State.FULL,
    (State.FULL, Event.RESERVED): State.ROOMY,
}


class Room:
    """The room of one folder. `reserve_bytes` is what is kept there for what is no record."""

    __slots__ = ("_since_ms", "reserve_bytes", "state")

    def __init__(self, volume_bytes: int = 0) -> None:
        self.reserve_bytes = reserve_bytes(volume_bytes)
        self.state = State.ROOMY
        self._since_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether records are refused."""
        return self.state is State.FULL

    def refused(self, now_ms: int) -> bool:
        """The disk refused something; whether that is news. `now_ms` is a steady clock's."""
        return self._step(Event.REFUSED, now_ms)

    def reserved(self, now_ms: int) -> bool:
        """The reserve is allocated again; whether the folder takes records from now on."""
        return self._step(Event.RESERVED, now_ms)

    def may_return(self, free_bytes: int, now_ms: int) -> bool:
        """Whether it is time to allocate the reserve again, with so much free."""
        is_due = self.is_full and now_ms - self._since_ms >= FULL_AT_LEAST_MS
        return is_due and free_bytes > 2 * self.reserve_bytes

    def refusal(self, what: object) -> DiskFull:
        """Why a record is not taken."""
        return DiskFull(f"{what}: its folder has no room")

    def _step(self, event: Event, now_ms: int) -> bool:
        before, after = self.state, TRANSITIONS.get((self.state, event))
        if after is None:
            raise Bug(f"a folder that is {before.value} was {event.value}")
        self.state = after
        if after is not before:
            self._since_ms = now_ms
        return after is not before


def reserve_bytes(volume_bytes: int) -> int:
    """What is kept on a volume of that size."""
    return min(RESERVE_BYTES, volume_bytes // RESERVE_SHARE)
