"""Parts of files that are sent without being read: most of a large answer to a consumer.

Why: reading and sending copies each byte twice, and holds it in memory until the peer has taken it,
which a slow one does late. The kernel can send what is in its page cache by itself (`sendfile`).
Rules kept: a loan has a handle of its own, so that a file that is renamed, replaced or removed is
sent as it was; who truncates a file below what was lent makes another file (see `RealFile.truncate`
in `files`). What is not in the page cache is not lent, so that sending does not wait for the disk.
Not here: which bytes may be lent (`core.log.log.Log.lend`), the sending (`loan_sender`).
"""

from __future__ import annotations

import ctypes
import mmap
import os

from anabranch.core.types import Loan

LENT_BYTES = 64 << 10
"""From here on a part of a file is lent: less is read and written sooner than it is sent."""
MOST_LOANS = 1024
"""Each has a handle. Answers beyond are read into memory."""
WARM_BYTES = 1 << 20
_CACHESTAT = 451
"""The number of the system call, the same for all processors but Alpha. Linux has it since 6.5."""


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Pages(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


class Lender:
    """Lends parts of files that are in memory, a bounded number at a time. For one thread.

    Where the kernel does not say what is in memory nothing is lent."""

    __slots__ = ("_arguments", "_call", "_pages", "_range", "count")

    def __init__(self) -> None:
        self.count = 0
        self._range, self._pages = _Range(), _Pages()
        self._arguments = ctypes.byref(self._range), ctypes.byref(self._pages), 0
        is_known = os.uname().sysname == "Linux" and os.uname().machine != "alpha"
        self._call = ctypes.CDLL(None).syscall if is_known else None

    def lend(self, handle: int, position: int, length: int) -> FileLoan | None:
        """A part of a file; None where it is small or not in memory, or many are lent already."""
        if length < LENT_BYTES or self.count >= MOST_LOANS:
            return None
        if not self.is_in_memory(handle, position, length):
            return None
        try:
            return FileLoan(self, os.dup(handle), position, length)
        except OSError:  # there is no room for another handle
            return None

    def is_in_memory(self, handle: int, position: int, length: int) -> bool:
        """Whether the page cache holds a part of a file, as far as this kernel says."""
        if self._call is None:
            return False
        self._range.offset, self._range.length = position, length
        if self._call(_CACHESTAT, handle, *self._arguments):
            self._call = None  # an older kernel, or one that keeps it to itself
            return False
        last = (position + length - 1) // mmap.PAGESIZE
        return bool(self._pages.cached > last - position // mmap.PAGESIZE)


class FileLoan(Loan):
    """A part of a file, as it was when it was lent."""

    __slots__ = ("_handle", "_lender", "_position")

    def __init__(self, lender: Lender, handle: int, position: int, length: int) -> None:
        super().__init__(length)
        self._lender, self._handle, self._position = lender, handle, position
        lender.count += 1

    def __del__(self) -> None:
        self._lender.count -= 1
        os.close(self._handle)

    def send(self, socket: int, start: int) -> int:
        """Send bytes from `start` on; how many the socket took. Raises OSError."""
        return os.sendfile(socket, self._handle, self._position + start, self.length - start)

    def is_in_memory(self, start: int) -> bool:
        """Whether what lies behind `start` can be sent without the disk."""
        position, length = self._position + start, self.length - start
        return self._lender.is_in_memory(self._handle, position, length)

    def warm(self, start: int) -> None:
        """Bring into memory what lies behind `start`. Safe in a thread. Raises OSError."""
        position, end = self._position + start, self._position + self.length
        while position < end:
            count = len(os.pread(self._handle, min(WARM_BYTES, end - position), position))
            if not count:
                return
            position += count

    def read(self) -> bytes:
        """All of it. Raises OSError."""
        held = os.pread(self._handle, self.length, self._position)
        if len(held) < self.length:
            raise OSError(f"{self.length} bytes were lent, {len(held)} are there")
        return held
