"""Work of a coordinator that is longer than a step may be: it is done in slices.

What: `Sliced` is such work under way: a shard that is read back, or an assignment of partitions to
many members. What waits stands in `mailbox.to_load`, and `begun` begins the first of it. Rules
kept: one work is under way at a time, in the order in which it was left; between two slices other
steps may run, so that work looks again at what it relies on; nothing of it counts before `end`. Not
here: how long a slice is, which the performer decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.files import ColdRead
    from anabranch.core.step import Mailbox
    from anabranch.core.types import TopicPartition


class Sliced(Protocol):
    """One work under way."""

    @property
    def skipped_records(self) -> int:
        """Records that this version does not know, for the operator."""
        return 0

    @property
    def place(self) -> TopicPartition:
        """The partition of a coordinator's topic that it is about."""

    def steps(self, now_ms: int) -> Iterator[ColdRead | None]:
        """Do everything. Yields what must be warmed, and None after each slice; may raise
        StorageFault."""

    def failed(self, fault: StorageFault) -> None:
        """Its steps, or a read of it in a thread, met a fault."""

    def end(self, now_ms: int) -> bool:
        """Its steps are over, or failed: it waits no more. Whether it counts now."""


class Waiting(Protocol):
    """What stands in `mailbox.to_load`."""

    def sliced(self) -> Sliced:
        """The work, to be begun now."""


def begun(left: Mailbox) -> Sliced:
    """The work that waits longest. It stays there until its end."""
    first: Waiting = left.to_load[0]
    return first.sliced()
