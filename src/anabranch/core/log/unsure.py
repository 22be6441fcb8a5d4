"""The mark of a log whose files are being synced: what a failed sync leaves to the next process.

What: a file in the log's folder that is there from before the first sync of a round until all of
them have succeeded, and `Rewriting`, through which a log that is opened with the mark is read. Why:
after an fsync that failed, the kernel takes the pages for written. Memory has the bytes, the disk
may not have them, and no later fsync says so. The process takes the folder offline; one that is
killed leaves the files to a process that knows nothing of it. Rules kept: whenever a process ends
while a sync runs, or after one failed, the mark is there; with the mark, everything behind the
recovery point is written again, the very bytes that were checked, so that the next sync is a real
one; the mark goes after a round in which every sync succeeded. The mark is never synced itself: the
memory that has the doubtful bytes has the mark too, and a power cut takes both. Names need none of
this: no file system takes changes after it failed to store one. Source: PostgreSQL's fsync failures
of 2018. Not here: which files a round covers (`syncing`).
"""

from __future__ import annotations

import contextlib

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull, File
from anabranch.core.log.segment import Segment
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer

MARK = ".syncing"


class MarkSync:
    """Comes first in a round."""

    __slots__ = ("_files", "_path")

    def __init__(self, log: LogState) -> None:
        self._files = log.files
        self._path = _path(log)

    def sync(self) -> None:
        """See Syncable. A full disk may leave no mark, which alone is no reason to fail."""
        with contextlib.suppress(DiskFull):
            self._files.make_empty(self._path)


class UnmarkSync:
    """Comes behind the files of a round."""

    __slots__ = ("_log", "_path")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._path = _path(log)

    def sync(self) -> None:
        """See Syncable. A sync beside this round may have failed: then the mark stays."""
        if self._log.fault is None:
            self._log.files.remove(self._path)


def sync_at_once(log: LogState, segment: Segment) -> None:
    """Sync a segment's batches outside of a round; what a round needs of the mark is left to it."""
    mark = MarkSync(log)
    mark.sync()
    try:
        segment.file.sync()
    except StorageFault:
        mark.sync()  # a round that has just ended may have removed it
        raise
    if not log.is_marked:
        log.files.remove(_path(log))


class Rewriting:
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
        """See File."""
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
