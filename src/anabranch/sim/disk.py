"""A disk that forgets and fails on purpose, behind the interface that `core.log` uses.

Model: every file has the bytes that a running process sees and the bytes that are on stable
storage. A power cut keeps, for each 4 KB page that was not synced, the old page, the new one, or a
torn mixture; the length may be any between; names that were made, renamed or removed since the
folder was synced may be old or new, each for itself. Besides: calls that fail (a failing write
lets a part through), a disk that fills up, and bit flips. All choices come from the generator that
is handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.types import Buffer

PAGE_BYTES = 4096
UNLIMITED = 1 << 60


class _Inode:
    """One file's bytes: as seen, and as stored."""

    __slots__ = ("dirty", "seen", "stored")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.stored = bytearray()
        self.dirty: set[int] = set()

    def touch(self, start: int, end: int) -> None:
        """Note the pages of a range as not synced."""
        self.dirty.update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def sync(self) -> None:
        """Make what is seen what is stored."""
        self.stored = bytearray(self.seen)
        self.dirty.clear()

    def cut_power(self, random: Random) -> None:
        """Keep what a power cut might keep."""
        sizes = [len(self.stored), len(self.seen)]
        size = random.choice([*sizes, random.randint(min(sizes), max(sizes))])
        after = bytearray(size)
        common = min(size, len(self.stored))
        after[:common] = self.stored[:common]
        for page in sorted(self.dirty):
            start = page * PAGE_BYTES
            new = self.seen[start : min(start + PAGE_BYTES, size)]
            fate = random.randrange(3)
            if fate == 2:
                new = new[: random.randint(0, len(new))]
            if fate and start < size:
                after[start : start + len(new)] = new
        self.seen, self.stored = after, bytearray(after)
        self.dirty.clear()


class SimFile:
    """A handle; the file is found by name when it is first used."""

    def __init__(self, disk: SimDisk, path: str, create: bool) -> None:
        self.path = path
        self._disk = disk
        self._create = create
        self._held: _Inode | None = None

    def _inode(self) -> _Inode:
        if self._held is None:
            self._held = self._disk.inode(self.path, create=self._create)
        return self._held

    def read(self, position: int, length: int) -> bytes:
        """See File."""
        self._disk.step("read", self.path)
        return bytes(self._inode().seen[position : position + length])

    def read_blocking(self, position: int, length: int) -> bytes:
        """See File."""
        return self.read(position, length)

    def warm(self, position: int, length: int) -> None:
        """Everything is in memory already."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """See File: a failing write, or a full disk, lets a part through."""
        self._disk.write(self._inode(), self.path, position, b"".join(buffers))

    def size(self) -> int:
        """See File."""
        return len(self._inode().seen)

    def truncate(self, size: int) -> None:
        """See File."""
        self._disk.step("truncate", self.path)
        inode = self._inode()
        inode.touch(min(size, len(inode.seen)), max(size, len(inode.seen)))
        if size < len(inode.seen):
            del inode.seen[size:]
        else:
            inode.seen.extend(bytes(size - len(inode.seen)))

    def sync(self) -> None:
        """See Syncable: a file that was removed meanwhile is not made again."""
        self._disk.step("sync", self.path)
        (self._held or self._disk.inode(self.path, create=False)).sync()

    def close(self) -> None:
        """See File."""
        self._held = None


class SimDisk:
    """Files that can lose power, fail at a chosen call, and fill up.

    `fail_in` counts calls down to the one that fails (-1: none does); `free` is the space left.
    `calls` counts calls, so that a run can be repeated with a fault at each of them.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: dict[str, _Inode | None] = {}
        self.stored_names: dict[str, _Inode | None] = {}
        self.fail_in = -1
        self.free = UNLIMITED
        self.calls = 0

    def step(self, call: str, path: str) -> None:
        """Count a call; raises StorageFault when its turn to fail has come."""
        self.calls += 1
        if self.fail_in > 0:
            self.fail_in -= 1
            if self.fail_in == 0:
                self.fail_in = -1
                raise StorageFault(f"{path}: {call} failed on purpose")

    def inode(self, path: str, *, create: bool) -> _Inode:
        """A file's bytes by name."""
        inode = self.names.get(path)
        if inode is None:
            if not create:
                raise StorageFault(f"{path}: no such file")
            inode = self.names[path] = _Inode()
        return inode

    def write(self, inode: _Inode, path: str, position: int, written: bytes) -> None:
        """Write at a position within what is free."""
        try:
            self.step("write", path)
        except StorageFault:
            self._put(inode, position, written[: self.random.randint(0, len(written))])
            raise
        growth = max(0, position + len(written) - len(inode.seen))
        if growth > self.free:
            self._put(inode, position, written[: len(written) - growth + self.free])
            raise DiskFull(f"{path}: no space left on purpose")
        self._put(inode, position, written)

    def _put(self, inode: _Inode, position: int, written: bytes) -> None:
        growth = max(0, position + len(written) - len(inode.seen))
        if position > len(inode.seen):
            inode.seen.extend(bytes(position - len(inode.seen)))
        inode.seen[position : position + len(written)] = written
        inode.touch(position, position + len(written))
        if self.free < UNLIMITED:
            self.free -= growth

    def cut_power(self) -> None:
        """Lose what was not synced, or parts of it."""
        changed = sorted(
            path
            for path in self.names.keys() | self.stored_names.keys()
            if self.names.get(path, ...) is not self.stored_names.get(path, ...)
        )
        for path in changed:
            source = self.random.choice([self.names, self.stored_names])
            if path in source:
                self.names[path] = source[path]
            else:
                self.names.pop(path, None)
        for path in sorted(self.names):
            inode = self.names[path]
            if inode is not None:
                inode.cut_power(self.random)
            folder = path.rpartition("/")[0]
            if "/" in folder and folder not in self.names:
                del self.names[path]  # nobody can reach what was in a folder that is gone
        self.stored_names = dict(self.names)
        self.fail_in, self.free = -1, UNLIMITED

    def sync_all(self) -> None:
        """What the operating system does by itself when it has time: everything is stored."""
        for inode in self.names.values():
            if inode is not None:
                inode.sync()
        self.stored_names = dict(self.names)

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Let a stored bit rot."""
        inode = self.inode(path, create=False)
        inode.seen[position] ^= 1 << bit
        inode.stored = bytearray(inode.seen)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimFile:
        """See Files."""
        return SimFile(self, path, create and write)

    def exists(self, path: str) -> bool:
        """See Files."""
        return path in self.names

    def is_dir(self, path: str) -> bool:
        """See Files."""
        return path in self.names and self.names[path] is None

    def list(self, path: str) -> list[str]:
        """See Files."""
        prefix = path + "/"
        return sorted(
            name[len(prefix) :]
            for name in self.names
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def make_dirs(self, path: str) -> None:
        """See Files."""
        self.step("mkdir", path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self.names.setdefault("/".join(parts[:end]), None)

    def rename(self, source: str, target: str) -> None:
        """See Files."""
        self.step("rename", source)
        moved = [name for name in self.names if name == source or name.startswith(source + "/")]
        if not moved:
            raise StorageFault(f"{source}: no such file or folder")
        for name in moved:
            self.names[target + name[len(source) :]] = self.names.pop(name)

    def remove(self, path: str) -> None:
        """See Files."""
        self.step("remove", path)
        self.names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        """See Files."""
        self.step("remove", path)
        for name in [one for one in self.names if one == path or one.startswith(path + "/")]:
            del self.names[name]

    def sync_dir(self, path: str) -> None:
        """See Files."""
        self.step("sync", path)
        for name in self.names.keys() | self.stored_names.keys():
            if name == path or name.rpartition("/")[0] == path:
                if name in self.names:
                    self.stored_names[name] = self.names[name]
                else:
                    del self.stored_names[name]

    def sync_path(self, path: str) -> None:
        """See Files."""
        self.step("sync", path)
        inode = self.names.get(path)
        if inode is not None:
            inode.sync()

    def read(self, path: str) -> bytes:
        """See Files."""
        return bytes(self.inode(path, create=False).seen)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """See Files: a new file takes the name."""
        inode = _Inode()
        self.write(inode, path, 0, data)
        if sync:
            inode.sync()
        self.names[path] = inode
        if sync:
            self.stored_names[path] = inode

    def size(self, path: str) -> int:
        """See Files."""
        inode = self.names.get(path)
        return len(inode.seen) if inode is not None else 0

    def modified_ms(self, path: str) -> int:
        """See Files."""
        return 0

    def free_bytes(self, path: str) -> int:
        """See Files."""
        return self.free

    def volume_bytes(self, path: str) -> int:
        """See Files: made-up disks have no size, and keep no reserve."""
        return 0

    def reserve(self, path: str, size_bytes: int) -> None:
        """See Files."""

    def give_back(self, path: str) -> bool:
        """See Files."""
        return False
