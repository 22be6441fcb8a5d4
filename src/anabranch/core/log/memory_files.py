"""Files in memory: for tests, for simulation and as the plain reading of the interface.

Every write is visible at once and stays: the disk that forgets and fails is `sim/disk.py`, which is
built on this one. Threads may write files while others are listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import LONGEST_NAME_BYTES
from anabranch.core.types import Buffer


class MemoryFile:
    """One file's bytes; every handle of a path is the same object's view."""

    def __init__(self, files: MemoryFiles, path: str, *, create: bool) -> None:
        self.path = path
        self._files = files
        self._create = create

    def _bytes(self) -> bytearray:
        held = self._files.contents.get(self.path)
        if held is None:
            if not self._create:
                raise StorageFault(f"{self.path}: no such file")
            held = self._files.contents[self.path] = bytearray()
        return held

    def read(self, position: int, length: int) -> bytes:
        return bytes(memoryview(self._bytes())[position : position + length])

    def lend(self, position: int, length: int) -> None:
        """There is nothing to gain."""

    def read_blocking(self, position: int, length: int) -> bytes:
        return self.read(position, length)

    def warm(self, position: int, length: int) -> None:
        """Everything is in memory already."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        held = self._bytes()
        if position > len(held):
            held.extend(bytes(position - len(held)))
        for buffer in buffers:
            held[position : position + len(buffer)] = buffer
            position += len(buffer)

    def size(self) -> int:
        return len(self._bytes())

    def truncate(self, size: int) -> None:
        held = self._bytes()
        if size < len(held):
            del held[size:]
        else:
            held.extend(bytes(size - len(held)))

    def sync(self) -> None:
        """Memory has nothing safer than itself."""

    def close(self) -> None:
        pass


def refuse_long(path: str) -> None:
    """Refuse a name that is longer than disks take. Raises StorageFault."""
    if len(path.rpartition("/")[2]) > LONGEST_NAME_BYTES:
        raise StorageFault(f"{path}: the name is too long")


class MemoryFiles:
    """A tree of files: `contents` by path, and the folders that were made."""

    def __init__(self) -> None:
        self.contents: dict[str, bytearray] = {}
        self.folders: set[str] = set()
        self.clock_ms = 0
        self.free = 1 << 40

    def open(self, path: str, *, create: bool = False, write: bool = True) -> MemoryFile:
        return MemoryFile(self, path, create=create and write)

    def exists(self, path: str) -> bool:
        return path in self.contents or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        return path in self.folders

    def list(self, path: str) -> list[str]:
        prefix = path + "/"
        names = {
            name[len(prefix) :].split("/", 1)[0]
            for held in (self.contents, self.folders)
            for name in tuple(held)
            if name.startswith(prefix)
        }
        return sorted(names)

    def make_dirs(self, path: str) -> None:
        parts = path.split("/")
        self.folders.update("/".join(parts[: end + 1]) for end in range(len(parts)))

    def rename(self, source: str, target: str) -> None:
        refuse_long(target)
        if source in self.contents:
            self.contents[target] = self.contents.pop(source)
            return
        if source not in self.folders:
            raise StorageFault(f"{source}: no such file or folder")
        for name in [name for name in tuple(self.contents) if name.startswith(source + "/")]:
            self.contents[target + name[len(source) :]] = self.contents.pop(name)
        self.folders.discard(source)
        self.folders.add(target)

    def remove(self, path: str) -> None:
        self.contents.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.folders.discard(path)
        for name in [name for name in tuple(self.contents) if name.startswith(path + "/")]:
            del self.contents[name]

    def sync_dir(self, path: str) -> None:
        pass

    def sync_path(self, path: str) -> None:
        pass

    def read(self, path: str) -> bytes:
        if path not in self.contents:
            raise StorageFault(f"{path}: no such file")
        return bytes(self.contents[path])

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        self.contents[path] = bytearray(data)

    def make_empty(self, path: str) -> None:
        self.contents.setdefault(path, bytearray())

    def size(self, path: str) -> int:
        return len(self.contents.get(path, b""))

    def modified_ms(self, path: str) -> int:
        return self.clock_ms

    def free_bytes(self, path: str) -> int:
        return self.free

    def volume_bytes(self, path: str) -> int:
        return 0

    def reserve(self, path: str, size_bytes: int) -> None:
        """A volume of no size keeps nothing."""

    def give_back(self, path: str) -> bool:
        return False
