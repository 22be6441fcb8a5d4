"""Who waits for acks=all, in line by partition.

What: each batch whose acknowledgement must wait stands in its partition's line with the ticket of
its append. Why a line: a client has dozens of batches under way, and a step of the high watermark
concerns those at the front only. Rule kept: tickets are acknowledged in the order of a line, so
that whoever stands behind one that still waits waits too (also a batch that was sent again, which
waits for what came before it did); a change of leadership, or of what is hosted here, lets the
whole line go. A request is woken once, when none of its batches waits. One that is over, answered
or with its connection gone, leaves its place when others come: a partition that stands still for
hours would else keep all that were ever tried. Not here: what each batch is answered
(`p00_produce`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from anabranch.core.partition.protocol import Partition, Ticket
    from anabranch.core.replication.partitions import Partitions


class Awaited:
    """One produce request: the key that it is parked under, and how many of its batches wait.

    It lives as long as the request is parked."""

    __slots__ = ("__weakref__", "left")

    def __init__(self) -> None:
        self.left = 0


class Acks:
    """The lines of all partitions of a broker."""

    def __init__(self) -> None:
        self.lines: dict[Hashable, deque[tuple[Ticket, int, Partition, ref[Awaited]]]] = {}
        """By partition; one in which nobody waits is not there."""

    def __len__(self) -> int:
        return sum(map(len, self.lines.values()))

    def wait(self, partition: Partition, ticket: Ticket, led_from_epoch: int, key: Awaited) -> None:
        """Stand in line until what the ticket is for is committed."""
        place = partition.topic_partition
        line = self.lines.get(place)
        if line is None:
            line = self.lines[place] = deque()
        while line and line[0][3]() is None:
            line.popleft()
        line.append((ticket, led_from_epoch, partition, ref(key)))
        key.left += 1

    def moved(self, place: Hashable, partitions: Partitions) -> list[Awaited]:
        """The requests of which nothing waits any more, after this partition moved."""
        line = self.lines.get(place)
        if line is None:
            return []
        ready: list[Awaited] = []
        while line:
            ticket, led_from_epoch, partition, waiting = line[0]
            if partition.acknowledged(ticket, led_from_epoch) is None:
                if partitions.served(*partition.topic_partition) is partition:
                    return ready
            line.popleft()
            key = waiting()
            if key is not None:
                key.left -= 1
                if not key.left:
                    ready.append(key)
        del self.lines[place]
        return ready
