"""The cache of objects' bytes: what was just written here, and what readers brought in.

What: pieces of objects, found by object and position. Rules kept: at most `most_bytes`, of which
whole objects go that were used longest ago; what somebody waits for is pinned until he has read
it; what readers far behind bring in goes first, so that they cost nobody else anything. Buffers are
kept as they came: nothing is copied or patched here. Not here: what to read (`reader.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable

from anabranch.core.types import Buffer

PIECE_BYTES = 400
"""What a piece costs beside its bytes: objects of a kilobyte must not cost more than is counted."""


class _Object:
    """The pieces of one object, by position."""

    __slots__ = ("pieces", "pins", "positions", "size_bytes")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.pieces: list[Buffer] = []
        self.size_bytes = 0
        self.pins = 0

    def add(self, position: int, piece: Buffer) -> int:
        """Take a piece; by how many bytes the object grew."""
        at = bisect_right(self.positions, position)
        if at and self.positions[at - 1] == position:
            grown = len(piece) - len(self.pieces[at - 1])
            if grown <= 0:
                return 0
            self.pieces[at - 1] = piece
        else:
            self.positions.insert(at, position)
            self.pieces.insert(at, piece)
            grown = len(piece) + PIECE_BYTES
        self.size_bytes += grown
        return grown

    def take(self, position: int, size: int) -> list[memoryview] | None:
        """The pieces of a range, or None when one is missing."""
        found: list[memoryview] = []
        at = bisect_right(self.positions, position) - 1
        while size > 0:
            if not 0 <= at < len(self.pieces):
                return None
            start = position - self.positions[at]
            piece = self.pieces[at]
            if not 0 <= start < len(piece):
                return None
            part = memoryview(piece)[start : start + size]
            found.append(part)
            position += len(part)
            size -= len(part)
            at += 1
        return found


class Blocks:
    """The pieces of all objects, the one used longest ago first."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.size_bytes = 0
        self.hits = self.misses = 0
        self._objects: OrderedDict[str, _Object] = OrderedDict()

    def __len__(self) -> int:
        return len(self._objects)

    def add(
        self, object_key: str, pieces: Iterable[tuple[int, Buffer]], *, is_far: bool = False
    ) -> None:
        """Take (position, bytes) of one object; `is_far`: they are the first to go."""
        found = self._objects.get(object_key)
        if found is None:
            found = self._objects[object_key] = _Object()
            if is_far:
                self._objects.move_to_end(object_key, last=False)
        for position, piece in pieces:
            self.size_bytes += found.add(position, piece)
        self.trim()

    def take(self, object_key: str, position: int, size: int) -> list[memoryview] | None:
        """The pieces of a range, or None when it is not all there."""
        found = self._objects.get(object_key)
        pieces = None if found is None else found.take(position, size)
        if pieces is None:
            self.misses += 1
        else:
            self.hits += 1
        return pieces

    def has(self, object_key: str, position: int, size: int) -> bool:
        """Whether a range is all there."""
        found = self._objects.get(object_key)
        return found is not None and found.take(position, size) is not None

    def used(self, object_key: str) -> None:
        """A reader that is not far behind uses it: it stays for longer."""
        if object_key in self._objects:
            self._objects.move_to_end(object_key)

    def pin(self, object_key: str) -> None:
        """Keep an object's pieces until `unpin`; those that are still to come, too."""
        found = self._objects.get(object_key)
        if found is None:
            found = self._objects[object_key] = _Object()
            self._objects.move_to_end(object_key, last=False)
        found.pins += 1

    def unpin(self, object_key: str) -> None:
        """It may go."""
        found = self._objects[object_key]
        found.pins -= 1
        if not found.pins and not found.pieces:
            del self._objects[object_key]

    def forget(self, object_key: str) -> None:
        """What was read is damaged: read it anew."""
        found = self._objects.get(object_key)
        if found is not None:
            self.size_bytes -= found.size_bytes
            found.positions, found.pieces, found.size_bytes = [], [], 0
            if not found.pins:
                del self._objects[object_key]

    def trim(self) -> None:
        """Let the oldest go until the rest fits."""
        if self.size_bytes <= self.most_bytes:
            return
        for _ in range(len(self._objects)):
            object_key, found = next(iter(self._objects.items()))
            if found.pins:
                self._objects.move_to_end(object_key)
                continue
            del self._objects[object_key]
            self.size_bytes -= found.size_bytes
            if self.size_bytes <= self.most_bytes:
                return
