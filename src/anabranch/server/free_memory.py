"""Free memory of the C library's heap goes back to the system.

What: every few seconds a thread has glibc give back the pages of its heap on which nothing lies
(`malloc_trim`), where that may be much. Why: glibc by itself gives back only what is free at the
end of the heap. Requests of producers that waited for a store leave holes between what stays, and
those that come next are larger: a broker kept 15 to 20 MiB that it did not use. Why not a setting
of glibc that maps each large piece by itself: a fresh megabyte costs more to map and clear than to
receive, and memory that is used all the time stays where it is here. Rule kept: a round that gives
back little is followed by a longer pause, since it looks at every hole. Other C libraries have no
such call; there nothing is done.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import NamedTuple, Protocol

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 15.0
WORTHWHILE_BYTES = 8 << 20
"""Less than this is not looked for."""
LITTLE_BYTES = 1 << 20
"""A round that gives back less doubles the pause."""


class _Counts(ctypes.Structure):
    """glibc's `mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


class Heap(Protocol):
    """What a C library says of its heap, and does."""

    def free_bytes(self) -> int:
        """Bytes on which nothing lies; some of them may be given back already."""

    def resident_bytes(self) -> int:
        """The process's memory."""

    def trim(self) -> None:
        """Give back what may be."""


class GlibcHeap:
    """glibc 2.33 or newer."""

    def __init__(self) -> None:
        """Raises AttributeError where the C library is another one."""
        library = ctypes.CDLL(None)
        self._counts, self._trim = library.mallinfo2, library.malloc_trim
        self._counts.restype = _Counts

    def free_bytes(self) -> int:
        return int(self._counts().fordblks)

    def resident_bytes(self) -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def trim(self) -> None:
        self._trim(0)


class Round(NamedTuple):
    """What came of a look: bytes given back, and when to look again."""

    given_back: int
    pause_s: float


def look(heap: Heap, pause_s: float) -> Round:
    """Give back what is free, if that may be much. `pause_s` is the pause before this look."""
    if heap.free_bytes() < WORTHWHILE_BYTES:
        return Round(0, FIRST_PAUSE_S)
    before = heap.resident_bytes()
    heap.trim()
    given_back = before - heap.resident_bytes()
    if given_back >= LITTLE_BYTES:
        return Round(given_back, FIRST_PAUSE_S)
    return Round(given_back, min(2 * pause_s, LONGEST_PAUSE_S))


async def give_back() -> None:
    """Look again and again, until this is cancelled. The thread lets the loop run meanwhile."""
    try:
        heap = GlibcHeap()
    except (AttributeError, OSError):
        return
    pause_s = FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause_s)
        try:
            pause_s = (await asyncio.to_thread(look, heap, pause_s)).pause_s
        except OSError:  # no /proc here
            return
