"""Memory that large frames are received into, used again when nobody looks at it any more.

Why: a fresh megabyte costs more to map and clear than to receive. A frame is handed out as a
memoryview, and whoever keeps a slice of it (a parked request, a write in a thread) keeps a
reference to the memory beneath; a buffer whose only reference is this pool's is free. So nobody
gives anything back, and nobody can give back too early.

Rule kept: at most `POOLED_BUFFERS` buffers of at most `LARGEST_POOLED_BYTES` are kept, or as many
and as many bytes of them as the pool's owner says.
"""

from __future__ import annotations

import mmap
import sys

POOLED_BUFFERS = 8
"""Enough for the frames in flight of one busy client; more would be idle memory."""

LARGEST_POOLED_BYTES = 4 << 20
ROUND_UP_BYTES = 256 << 10
"""Frames of one client differ by little: rounded sizes make buffers fit the next one too."""

FREE_REFERENCES = 3
"""The list, the loop variable, and the argument of getrefcount."""


def _untouched(size: int) -> mmap.mmap:
    """Zeroed memory that the system backs page by page, as it is first written to."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class BufferPool:
    """Buffers for large frames of one event loop."""

    __slots__ = ("_buffers", "_most", "_most_bytes", "made")

    def __init__(
        self, most: int = POOLED_BUFFERS, most_bytes: int = POOLED_BUFFERS * LARGEST_POOLED_BYTES
    ) -> None:
        self._buffers: list[mmap.mmap] = []
        self._most = most
        self._most_bytes = most_bytes
        self.made = 0

    def take(self, size: int) -> memoryview:
        """A writable view of exactly `size` bytes; what it holds is left from earlier use."""
        return self._again(size) or self._make(size)

    def _again(self, size: int) -> memoryview | None:
        for buffer in self._buffers:
            if size <= len(buffer) and sys.getrefcount(buffer) == FREE_REFERENCES:
                return memoryview(buffer)[:size]
        return None

    def _make(self, size: int) -> memoryview:
        # Pages come with the bytes: a client that only announces a frame takes no memory.
        self.made += 1
        if size > LARGEST_POOLED_BYTES:
            return memoryview(_untouched(size))
        buffer = _untouched(-(-size // ROUND_UP_BYTES) * ROUND_UP_BYTES)
        self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: mmap.mmap) -> None:
        """Keep it if there is room, or once smaller ones that are free have made room."""
        index = 0
        while not (room := self._has_room(len(buffer))) and index < len(self._buffers):
            old = self._buffers[index]
            if len(old) < len(buffer) and sys.getrefcount(old) == FREE_REFERENCES:
                del self._buffers[index]
            else:
                index += 1
        if room:
            self._buffers.append(buffer)

    def _has_room(self, size: int) -> bool:
        return len(self._buffers) < self._most and self.kept_bytes + size <= self._most_bytes

    @property
    def kept_bytes(self) -> int:
        """Memory that the pool holds on to."""
        return sum(len(buffer) for buffer in self._buffers)
