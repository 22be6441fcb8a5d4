"""Reads of objects that wait for their turn, and how many are under way.

What: a lane has the ranges that are wanted, by object, and gives the next reads of them. Ranges
that lie close together are one read. Rules kept: reads under way are bounded in number and in
bytes, since what a slow store has not sent yet lies in memory; a read is small enough to end in
time on a slow link, where what was read of one that does not end is lost; objects take turns. One
range is never parted. Not here: who waits for what (`reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

MOST_NEAR, MOST_FAR = 16, 4
"""Reads of objects at once, for readers near the end and for those far behind."""
MOST_READ_BYTES = 2 << 20
"""Of one read: it ends within its 10 s where a store sends 0.2 MB/s to each of several reads."""
MOST_LANE_BYTES = 8 << 20
"""Of all reads of a lane: as much as one write buffer."""
NEAR_GAP_BYTES = 64 << 10
"""Ranges with so little between them are read as one: cheaper than another request."""

Range = tuple[int, int]
"""Position and length."""
Waiting = TypeVar("Waiting")


class Lane(Generic[Waiting]):
    """Reads for one kind of readers; `most` of them at once."""

    __slots__ = ("_bytes_under_way", "_most", "_waiting", "under_way")

    def __init__(self, most: int) -> None:
        self.under_way = 0
        self._most = most
        self._bytes_under_way = 0
        self._waiting: dict[str, dict[Range, list[Waiting]]] = {}

    @property
    def waiting(self) -> int:
        """Objects of which something is wanted and not asked for."""
        return len(self._waiting)

    def wants(self, object_key: str, where: Range) -> list[Waiting]:
        """A range is wanted: the list of those that wait for it."""
        return self._waiting.setdefault(object_key, {}).setdefault(where, [])

    def take(self) -> Iterator[tuple[str, dict[Range, list[Waiting]]]]:
        """The reads that may be made now: ranges of an object, and who waits for each."""
        while self._waiting and self.under_way < self._most:
            object_key = next(iter(self._waiting))
            wanted, part = self._waiting[object_key], first_part(self._waiting[object_key])
            size_bytes = size_of(part)
            if self.under_way and self._bytes_under_way + size_bytes > MOST_LANE_BYTES:
                return
            self.under_way += 1
            self._bytes_under_way += size_bytes
            del self._waiting[object_key]
            if rest := {where: who for where, who in wanted.items() if where not in part}:
                self._waiting[object_key] = rest
            yield object_key, {where: who for where, who in wanted.items() if where in part}

    def ended(self, ranges: Iterable[Range]) -> None:
        """A read of these ranges has ended."""
        self.under_way -= 1
        self._bytes_under_way -= size_of(ranges)


def size_of(ranges: Iterable[Range]) -> int:
    """Bytes that a read of these ranges brings."""
    return sum(length for _, length in joined(ranges))


def first_part(ranges: Iterable[Range]) -> set[Range]:
    """The first ranges of an object, as many as one read may bring; at least one."""
    part: set[Range] = set()
    size_bytes = end = 0
    for position, length in sorted(ranges):
        reaches = max(end, position + length)
        is_near = bool(part) and position - end <= NEAR_GAP_BYTES
        size_bytes += reaches - end if is_near else length
        if part and size_bytes > MOST_READ_BYTES:
            break
        part.add((position, length))
        end = reaches
    return part


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """(position, length) ranges in order, those that lie close together as one."""
    whole: list[Range] = []
    for position, length in sorted(ranges):
        if whole:
            last, size = whole[-1]
            if position - (last + size) <= NEAR_GAP_BYTES:
                whole[-1] = (last, max(size, position + length - last))
                continue
        whole.append((position, length))
    return tuple(whole)
