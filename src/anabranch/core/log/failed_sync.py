"""The mark of a log of which a sync has failed: what that leaves to the next process.

What: a file in the log's folder that a failed sync leaves, `Watched`, which leaves it, and
`WriteBackFile`, through which a log that is opened with it is read. Why: after an fsync that
failed, the kernel takes the pages for written. Memory has the bytes, the disk may not have them,
and no later fsync says so. The process takes the folder offline; one that is killed leaves the
files to a process that knows nothing of it. Rules kept: with the mark, everything behind the
recovery point is written again, the very bytes that are checked, so that the next sync is a real
one; the mark goes after a round in which every sync succeeded. The mark is never synced itself: the
memory that has the doubtful bytes has the mark too, and a power cut takes both. Whoever syncs in
threads calls `leave_mark` for a sync that takes long as well: one that hangs is why people kill a
process. Names need none of this: no file system takes changes after it failed to store one. Source:
PostgreSQL's fsync failures of 2018. Not here: which files a round covers (`sync_round`).
"""

from __future__ import annotations

import contextlib

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import File, Syncable
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer

MARK = ".syncing"


def leave_mark(log: LogState) -> None:
    """Note that what is behind the recovery point may not be on the disk; in any thread. A disk
    that refuses even that is no new fault."""
    log.is_marked = True
    with contextlib.suppress(StorageFault):
        log.files.make_empty(_path(log))


class Watched:
    """A file of a round, whose failed sync leaves the mark."""

    __slots__ = ("_file", "_log")

    def __init__(self, log: LogState, file: Syncable) -> None:
        self._log = log
        self._file = file

    def sync(self) -> None:
        try:
            self._file.sync()
        except StorageFault:
            leave_mark(self._log)
            raise


class UnmarkSync:
    """Comes behind the files of a round: all of them are stored."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def sync(self) -> None:
        """A sync beside this round may have failed: then the mark stays."""
        log = self._log
        if log.is_marked and log.fault is None:
            log.is_marked = False
            log.files.remove(_path(log))


def sync_at_once(log: LogState, file: Syncable) -> None:
    """Sync a file outside of a round."""
    try:
        file.sync()
    except StorageFault as fault:
        log.fail(fault)  # a round that ends meanwhile leaves the mark
        leave_mark(log)
        raise


class WriteBackFile:
    """Reads a segment and, from a position on, writes what it reads back to where it was.

    It is written before it is checked, for memory may forget a page that counts as written, but not
    one that has just been written."""

    __slots__ = ("_chunk", "_file", "_position", "is_writing")

    def __init__(self, file: File) -> None:
        self._file = file
        self._chunk: Buffer = b""
        self._position = 0
        self.is_writing = False

    def read_blocking(self, position: int, length: int) -> Buffer:
        self._chunk, self._position = self._file.read_blocking(position, length), position
        if self.is_writing:
            self._file.write(position, (self._chunk,))
        return self._chunk

    def begin(self, position: int) -> None:
        """Write from here on; the position lies in what was read last."""
        if not self.is_writing:
            self.is_writing = True
            self._file.write(position, (memoryview(self._chunk)[position - self._position :],))


def _path(log: LogState) -> str:
    return f"{log.folder}/{MARK}"
