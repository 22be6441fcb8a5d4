"""The small file system that a log is handed.

What: the calls through which `core` touches disks. Why: the same log code then runs on a real disk
(`server/files.py`), in memory (`memory_files.py`) and on a disk that fails on purpose
(`sim/disk.py`). Rule kept: `core` never opens a file itself. Paths are plain strings joined with
'/'.

What a write promises: after `write` returns, a later `read` sees the bytes, also after the process
died. After `sync` returns they survive a power cut. Nothing else is promised: unsynced bytes may
survive in part and in any order. Not here: locks on folders, threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer, Loan

LONGEST_NAME_BYTES = 255
"""Of a file or folder in its folder: every disk takes as many, hardly one takes more."""


class DiskFull(StorageFault):
    """No space was left. The file is as it was before the call; the log stays usable."""


class Bringer(Enum):
    """Who brings in what a read lacks."""

    PAGE_CACHE = "page cache"
    """A thread, by `ColdRead.warm`."""
    DISKLESS = "diskless"
    """The batch coordinator and the store of diskless topics."""
    REMOTE = "remote"
    """The store of remote segments, and the facts about them."""


class ColdRead(Exception):
    """The bytes are not in memory: have `bringer` bring them, then ask again. Those of a file are
    in the page cache after `warm`."""

    bringer = Bringer.PAGE_CACHE
    brings_bytes = True
    """Whether what is brought in takes room, and may have to give it up again."""

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(f"{file.path}: {length} bytes at {position} are not in memory")
        self.file = file
        self.position = position
        self.length = length

    def warm(self) -> None:
        """Bring the bytes into memory, waiting for the disk. Safe in a thread."""
        self.file.warm(self.position, self.length)

    def forget_frames(self) -> None:
        """Let go of the calls that it came through, which hold on to it and to what they have read
        so far: megabytes, until the collector finds the circle."""
        self.__traceback__ = self.__context__ = None


class Syncable(Protocol):
    """Something whose last state can be made to survive a power cut; may be called in a thread."""

    def sync(self) -> None:
        """Block until everything written before the call is on stable storage.

        Raises StorageFault; the state of the unsynced bytes is then unknown for good."""


class File(Syncable, Protocol):
    """One file. `read`, `write` and `truncate` are for one thread; `warm` and `sync` for any."""

    path: str

    def read(self, position: int, length: int) -> bytes | bytearray | memoryview:
        """Bytes `[position, position + length)`, fewer only at the end of the file.

        Raises ColdRead when reading would wait for the disk (data files of a real node only)."""

    def lend(self, position: int, length: int) -> Loan | None:
        """Bytes `[position, position + length)`, to be sent without being read; None where reading
        them is better, or all that can be done. Never raises ColdRead."""

    def read_blocking(self, position: int, length: int) -> bytes | bytearray | memoryview:
        """As `read`, waiting for the disk: for start, recovery, truncation, and for threads."""

    def warm(self, position: int, length: int) -> None:
        """Bring a range into memory, waiting for the disk. Safe in a thread.

        What the disk refuses is raised by the next `read`: that one knows whose record it wants."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other from `position`, or raise.

        Raises DiskFull or StorageFault; bytes at or after `position` are then undefined."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut (or extend with zeros) to `size` bytes."""

    def close(self) -> None:
        """Give the handle back. The object may be used again: it reopens itself."""


class Files(Protocol):
    """A tree of files. Every call raises StorageFault when the disk refuses."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File:
        """A file handle; with `create` an absent file is made at the first write.

        Raises StorageFault at the first use when the file is absent and `create` is not set."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder of that name exists."""

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; an absent folder is empty."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents; it may exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; an existing target file is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file; it may be absent."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and what is in it; it may be absent."""

    def sync_dir(self, path: str) -> None:
        """Make names created, renamed or removed in a folder survive a power cut."""

    def sync_path(self, path: str) -> None:
        """Sync a file by name; it may be absent."""

    def read(self, path: str) -> bytes:
        """A whole small file."""

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a small file: readers see the old or the new bytes, never a mixture."""

    def make_empty(self, path: str) -> None:
        """Make an empty file if there is none of that name: there until the machine stops."""

    def size(self, path: str) -> int:
        """Length of a file in bytes, 0 when absent."""

    def modified_ms(self, path: str) -> int:
        """When a file was last written, in milliseconds since 1970."""

    def free_bytes(self, path: str) -> int:
        """Space left for files in that folder."""

    def volume_bytes(self, path: str) -> int:
        """Size of the volume that the folder is on."""

    def reserve(self, path: str, size_bytes: int) -> None:
        """Keep so much space of a folder's volume, also when the process ends.

        Raises DiskFull, and keeps nothing then."""

    def give_back(self, path: str) -> bool:
        """Let others have what is kept in a folder; whether anything was."""
