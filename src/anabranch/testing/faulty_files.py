"""The files of a node whose disk can be slow or full, or whose process was killed.

What: `RealFiles` that look at the node's faults first. Slow: everything that would wait for a disk
waits longer, in the thread that asked: writes, syncs, reads of bytes that are not in memory. Full:
nothing that needs room is written, as the system says it (`DiskFull`), but for what fits into the
reserve that the node has given back; what needs no room goes on, so that old segments can be
removed. Dead: nothing is touched any more. Rule kept: what was read or written without a fault is
real. Not here: the metadata store, which lies on a disk of its own, and the process that compacts.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.types import Buffer
from anabranch.server.files import RESERVE, RealFile, RealFiles
from anabranch.testing.faults import NodeFaults

BLOCK_BYTES = 4096
"""What the smallest file or folder takes."""


class FaultyFile(RealFile):
    """A file on such a disk."""

    __slots__ = ("_disk",)

    def __init__(self, files: FaultyFiles, path: str, *, create: bool, write: bool) -> None:
        super().__init__(files, path, create=create, write=write)
        self._disk = files

    def open_handle(self, *, create: bool) -> int:
        """As of any file; a dead node opens none."""
        if self._disk.is_dead:
            raise OSError(errno.EIO, "the node was killed")
        if create and not os.path.exists(self.path):
            try:
                self._disk.take_room(self.path)
            except DiskFull:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        return super().open_handle(create=create)

    def read_blocking(self, position: int, length: int) -> Buffer:
        self._disk.wait()
        return super().read_blocking(position, length)

    def warm(self, position: int, length: int) -> None:
        self._disk.wait()
        super().warm(position, length)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._disk.take_room(self.path, sum(map(len, buffers)))
        super().write(position, buffers)

    def truncate(self, size: int) -> None:
        self._disk.touch(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._disk.touch(self.path)
        super().sync()


class FaultyFiles(RealFiles):
    """A tree of files on such a disk."""

    def __init__(self, faults: NodeFaults) -> None:
        super().__init__()
        self.faults = faults
        self.is_dead = False
        """Whether the node was killed in this process."""
        self.spare_bytes = 0
        """What was given back since the disk is full, and is not written yet."""

    def wait(self) -> None:
        """What a slow disk does to its users."""
        if self.faults.disk_ms:
            time.sleep(self.faults.disk_ms / 1000)

    def touch(self, path: str) -> None:
        """Before a change that needs no room. Raises StorageFault."""
        self.wait()
        if self.is_dead:
            raise StorageFault(f"{path}: the node was killed")

    def take_room(self, path: str, size_bytes: int = BLOCK_BYTES) -> None:
        """Before a change that needs room. Raises DiskFull or StorageFault."""
        self.touch(path)
        if not self.faults.disk_is_full:
            self.spare_bytes = 0
        elif self.spare_bytes < size_bytes:
            raise DiskFull(f"{path}: {os.strerror(errno.ENOSPC)}")
        else:
            self.spare_bytes -= size_bytes

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RealFile:
        return FaultyFile(self, path, create=create, write=write)

    def make_dirs(self, path: str) -> None:
        if not os.path.isdir(path):
            self.take_room(path)
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.touch(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.touch(path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.touch(path)
        super().remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self.touch(path)
        super().sync_dir(path)

    def sync_path(self, path: str) -> None:
        self.touch(path)
        super().sync_path(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.take_room(path, len(data))
        super().write_atomic(path, data, sync=sync)

    def make_empty(self, path: str) -> None:
        self.touch(path)
        super().make_empty(path)

    def free_bytes(self, path: str) -> int:
        return self.spare_bytes if self.faults.disk_is_full else super().free_bytes(path)

    def reserve(self, path: str, size_bytes: int) -> None:
        self.take_room(path, size_bytes)
        super().reserve(path, size_bytes)

    def give_back(self, path: str) -> bool:
        self.touch(path)
        if self.faults.disk_is_full:
            self.spare_bytes += self.size(f"{path}/{RESERVE}")
        return super().give_back(path)

    def close_all(self) -> None:
        """Give back every handle, as the system does when a process ends."""
        with self.lock:
            for file in self._opened:
                if file.handle >= 0 and not file.pins:
                    os.close(file.handle)
                    file.handle = -1
            self._opened.clear()
            self.open_count = 0
