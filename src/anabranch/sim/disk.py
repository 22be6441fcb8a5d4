"""A disk that forgets and fails on purpose, behind the interface that `core.log` uses.

Model: every file has the bytes that a running process sees and the bytes that are on stable
storage. A power cut keeps, for each 4 KB page that was not synced, the old page, the new one, or a
torn mixture; the length may be any between; names of files that were made, renamed or removed since
the folder was synced may be old or new, each for itself. A folder that was renamed has its old name
or its new one, with all that is in it. After a sync that failed, the pages count as written and are
not: the next sync of them succeeds and stores nothing. Besides: calls that fail (a failing write
lets a part through), bit flips, and folders (each a disk of its own, below the machine's name) that
fill up, keep a reserve, and fail. All choices come from the generator that is handed in. What a
power cut cannot do here: tear the rename of a file, or keep a later change of a name and lose an
earlier one in the same folder that was renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any
from zlib import crc32

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.memory_files import refuse_long
from anabranch.core.types import Buffer

PAGE_BYTES = 4096
UNLIMITED = 1 << 60
VOLUME_BYTES = 16 << 10
"""The size of a folder's disk, as far as its reserve goes: small, as all logs here are."""


class _Inode:
    """One file's bytes: as seen, and as stored."""

    __slots__ = ("dirty", "lost", "modified_ms", "seen", "stored")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.stored = bytearray()
        self.modified_ms = 0
        self.dirty: set[int] = set()
        self.lost: set[int] = set()
        """Pages that a failed sync took for written."""

    @classmethod
    def of(cls, content: bytearray) -> _Inode:
        """A file with this content, stored."""
        inode = cls()
        inode.seen, inode.stored = bytearray(content), bytearray(content)
        return inode

    def touch(self, start: int, end: int) -> None:
        """Note the pages of a range as not synced."""
        pages = range(start // PAGE_BYTES, -(-end // PAGE_BYTES))
        if len(pages) == 1:
            self.dirty.add(pages[0])
        else:
            self.dirty.update(pages)
        if self.lost:
            self.lost.difference_update(pages)

    def sync(self) -> None:
        """Make what is seen what is stored, but for what an earlier sync has lost."""
        if not self.dirty and not self.lost and len(self.seen) == len(self.stored):
            return  # no byte has changed since the last one
        stored = bytearray(self.seen)
        for page in self.lost:
            self._restore(stored, page)
        self.stored = stored
        self.dirty.clear()

    def fail_to_sync(self) -> None:
        """The kernel takes the pages for written."""
        self.lost |= self.dirty
        self.dirty.clear()

    def evict(self) -> None:
        """Memory forgets pages that count as written: what is stored is seen."""
        for page in self.lost:
            self._restore(self.seen, page)
        self.lost.clear()

    def _restore(self, content: bytearray, page: int) -> None:
        start = page * PAGE_BYTES
        size = max(0, min(PAGE_BYTES, len(content) - start))
        old = self.stored[start : start + size]
        content[start : start + size] = old + bytes(size - len(old))

    def cut_power(self, random: Random) -> None:
        """Keep what a power cut might keep."""
        sizes = [len(self.stored), len(self.seen)]
        size = random.choice([*sizes, random.randint(min(sizes), max(sizes))])
        after = bytearray(size)
        common = min(size, len(self.stored))
        after[:common] = self.stored[:common]
        for page in sorted(self.dirty | self.lost):
            start = page * PAGE_BYTES
            new = self.seen[start : min(start + PAGE_BYTES, size)]
            fate = random.randrange(3)
            if fate == 2:
                new = new[: random.randint(0, len(new))]
            if fate and start < size:
                after[start : start + len(new)] = new
        self.seen, self.stored = after, bytearray(after)
        self.dirty.clear()
        self.lost.clear()


class _Names(dict[str, _Inode | None]):
    """What stands under each name, as a running process sees it.

    `inside` has the names in each folder. `unsynced` has those of them that may differ on stable
    storage: a sync of the folder looks at no others."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: dict[str, dict[str, None]] = {}
        self.unsynced: dict[str, dict[str, None]] = {}

    def note(self, path: str) -> str:
        """What stands under a name has changed, or what is stored of it. The name's folder."""
        folder = path.rpartition("/")[0]
        self.unsynced.setdefault(folder, {})[path] = None
        return folder

    def __setitem__(self, path: str, inode: _Inode | None) -> None:
        self.inside.setdefault(self.note(path), {})[path] = None
        super().__setitem__(path, inode)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        del self.inside[self.note(path)][path]

    def pop(self, path: str, *default: Any) -> Any:
        """See dict."""
        found = self.get(path, *default) if default else self[path]
        if path in self:
            del self[path]
        return found

    def setdefault(self, path: str, inode: Any = None) -> Any:
        """See dict."""
        if path not in self:
            self[path] = inode
        return self[path]


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
        self._disk.step("read", self.path)
        return bytes(self._inode().seen[position : position + length])

    def lend(self, position: int, length: int) -> None:
        """There is nothing to gain."""

    def read_blocking(self, position: int, length: int) -> bytes:
        return self.read(position, length)

    def warm(self, position: int, length: int) -> None:
        """Everything is in memory already."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """A failing write, or a full disk, lets a part through."""
        self._disk.write(self._inode(), self.path, position, b"".join(buffers))

    def size(self) -> int:
        return len(self._inode().seen)

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self.path)
        inode = self._inode()
        inode.touch(min(size, len(inode.seen)), max(size, len(inode.seen)))
        if size < len(inode.seen):
            del inode.seen[size:]
        else:
            inode.seen.extend(bytes(size - len(inode.seen)))

    def sync(self) -> None:
        """A file that was removed meanwhile is not made again."""
        inode = self._held or self._disk.inode(self.path, create=False)
        self._disk.sync(inode, self.path)

    def close(self) -> None:
        self._held = None


def _no_clock() -> int:
    return 0


class SimDisk:
    """Files that can lose power, fail at a chosen call, and fill up.

    `fail_in` counts calls down to the one that fails (-1: none does); `free` is the space left.
    `broken` are folders whose disks refuse everything, `rooms` those with so much space left; a
    power cut mends neither. `calls` counts calls, so that a run can be repeated with a fault at
    each of them. `failed_syncs` are the paths whose sync failed, and `synced_again` those that were
    synced all the same: nothing may be, before the process has started anew (`started`). Files know
    when they were written last by `wall_ms`.
    """

    def __init__(self, random: Random, wall_ms: Callable[[], int] = _no_clock) -> None:
        self.random = random
        self.wall_ms = wall_ms
        self.names = _Names()
        self.stored_names: dict[str, _Inode | None] = {}
        self.fail_in = -1
        self.free = UNLIMITED
        self.calls = 0
        self.broken: set[str] = set()
        self.rooms: dict[str, int] = {}
        self.reserves: dict[str, int] = {}
        self.failed_syncs: set[str] = set()
        self.synced_again: set[str] = set()
        self._renamed: list[tuple[str, str]] = []
        """Folders that were renamed since their parents were synced, in order."""

    def mount(self, path: str) -> None:
        """Have a folder there for good: no power cut takes a disk's own place away."""
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            self.names[name] = self.stored_names[name] = None

    def is_broken(self, path: str) -> bool:
        """Whether the disk of a path refuses everything."""
        return bool(self._within(self.broken, path))

    def step(self, call: str, path: str) -> None:
        """Count a call; raises StorageFault when its turn to fail has come."""
        self.calls += 1
        for folder in self.broken:
            if path == folder or path.startswith(folder + "/"):
                raise StorageFault(f"{path}: {call} failed, its disk is gone")
        if self.fail_in > 0:
            self.fail_in -= 1
            if self.fail_in == 0:
                self.fail_in = -1
                raise StorageFault(f"{path}: {call} failed on purpose")
        if self.broken and self._within(self.broken, path):
            raise StorageFault(f"{path}: {call} failed, its disk is broken on purpose")

    @staticmethod
    def _within(folders: Iterable[str], path: str) -> str:
        """The one of these folders that a path lies in, "" for none."""
        return next((each for each in sorted(folders) if f"{path}/".startswith(f"{each}/")), "")

    def started(self) -> bool:
        """A process starts: what failed syncs lost is not in memory any more. Whether that is
        something."""
        self.failed_syncs.clear()
        lost = [inode for inode in self.names.values() if inode is not None and inode.lost]
        for inode in lost:
            inode.evict()
        return bool(lost)

    def sync(self, inode: _Inode, path: str) -> None:
        """Have a file's bytes stored. After a fault, what the kernel holds is unknown."""
        try:
            self.step("sync", path)
        except StorageFault:
            inode.fail_to_sync()
            self.failed_syncs.add(path)
            raise
        if path in self.failed_syncs:
            self.synced_again.add(path)
        inode.sync()

    def inode(self, path: str, *, create: bool) -> _Inode:
        """A file's bytes by name. No file is made in a folder that is gone."""
        inode = self.names.get(path)
        if inode is None:
            if not create:
                raise StorageFault(f"{path}: no such file")
            self._check_folder(path)
            inode = self.names[path] = _Inode()
        return inode

    def _check_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder and folder not in self.names:
            raise StorageFault(f"{path}: its folder is not there")

    def write(self, inode: _Inode, path: str, position: int, written: bytes) -> None:
        """Write at a position within what is free."""
        try:
            self.step("write", path)
        except StorageFault:
            self._put(inode, path, position, written[: self.random.randint(0, len(written))])
            raise
        if self.rooms or self.free < UNLIMITED:
            growth = max(0, position + len(written) - len(inode.seen))
            free = self.free_bytes(path)
            if growth > free:
                self._put(inode, path, position, written[: len(written) - growth + free])
                raise DiskFull(f"{path}: no space left on purpose")
        self._put(inode, path, position, written)

    def _put(self, inode: _Inode, path: str, position: int, written: bytes) -> None:
        seen, end = inode.seen, position + len(written)
        size = len(seen)
        if position > size:
            seen.extend(bytes(position - size))
        seen[position:end] = written
        inode.touch(position, end)
        inode.modified_ms = self.wall_ms()
        self._take(path, max(0, end - size))

    def _take(self, path: str, size_bytes: int) -> None:
        """Use space, or with a negative size give it back."""
        if self.free < UNLIMITED:
            self.free -= size_bytes
        folder = self._within(self.rooms, path) if self.rooms else ""
        if folder:
            self.rooms[folder] -= size_bytes

    def copied(self) -> SimDisk:
        """A disk with what a process sees in this one, all of it stored."""
        disk = SimDisk(self.random, self.wall_ms)
        for path, inode in self.names.items():
            copy = disk.names[path] = None if inode is None else _Inode.of(inode.seen)
            if copy is not None and inode is not None:
                copy.modified_ms = inode.modified_ms
        disk._all_names_are_stored()
        disk.reserves = dict(self.reserves)
        return disk

    def cut_power(self) -> None:
        """Lose what was not synced, or parts of it."""
        self._cut_renames()
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
        self._all_names_are_stored()
        self.fail_in, self.free = -1, UNLIMITED

    def _cut_renames(self) -> None:
        """A renamed folder has one of its names, with all that is in it. The first of the renames
        survive: no later one does without those before it."""
        if not self._renamed:
            return
        kept = self.random.randint(0, len(self._renamed))
        for source, target in reversed(self._renamed[kept:]):
            self._undo_rename(source, target)
        for source, target in self._renamed[:kept]:
            self.stored_names.pop(source, None)
            self.stored_names[target] = None
        self._renamed.clear()

    def _undo_rename(self, source: str, target: str) -> None:
        """What was made under the old name, or removed from the folder, came later: it is not."""
        inside = _below(self.stored_names, target) | _below(self.names, target)
        was_stored = source in self.stored_names
        for names in (self.names, self.stored_names):
            for path in (source, target):
                for name in (path, *(path + each for each in _below(names, path))):
                    names.pop(name, None)
        self.names[source] = None
        if was_stored:
            self.stored_names[source] = None
        for name, inode in inside.items():
            self.names[source + name] = self.stored_names[source + name] = inode

    def mend(self) -> None:
        """No call fails any more, and there is room; what is lost stays lost."""
        self.fail_in, self.free = -1, UNLIMITED

    def sync_all(self) -> None:
        """What the operating system does by itself when it has time: everything is stored."""
        for inode in self.names.values():
            if inode is not None:
                inode.sync()
        self._all_names_are_stored()
        self._renamed.clear()

    def _all_names_are_stored(self) -> None:
        self.stored_names = dict(self.names)
        self.names.unsynced.clear()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Let a stored bit rot."""
        inode = self.inode(path, create=False)
        inode.seen[position] ^= 1 << bit
        inode.stored = bytearray(inode.seen)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimFile:
        return SimFile(self, path, create and write)

    def exists(self, path: str) -> bool:
        return path in self.names

    def is_dir(self, path: str) -> bool:
        return path in self.names and self.names[path] is None

    def list(self, path: str) -> list[str]:
        length = len(path) + 1
        return sorted(name[length:] for name in self.names.inside.get(path, ()))

    def make_dirs(self, path: str) -> None:
        self.step("mkdir", path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            self.names.setdefault("/".join(parts[:end]), None)

    def rename(self, source: str, target: str) -> None:
        """What is in a folder belongs to it, whatever its name. A longer name may need a
        block of its own, which a full disk does not have: with every second one it is so."""
        self.step("rename", source)
        refuse_long(target)
        if self.rooms or self.free < UNLIMITED:
            is_longer = target not in self.names and len(target) > len(source)
            if is_longer and not self.free_bytes(source) and crc32(target.encode()) & 1:
                raise DiskFull(f"{target}: no space left for the name on purpose")
        if source not in self.names:
            raise StorageFault(f"{source}: no such file or folder")
        if self.is_dir(source):
            self._renamed.append((source, target))
            for names in (self.names, self.stored_names):
                for name in _below(names, source):
                    names[target + name] = names.pop(source + name)
                    self.names.note(target + name)
        self.names[target] = self.names.pop(source)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        self.names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.step("remove", path)
        for name in [one for one in self.names if one == path or one.startswith(path + "/")]:
            del self.names[name]

    def sync_dir(self, path: str) -> None:
        self.step("sync", path)
        names, stored = self.names, self.stored_names
        for name in (path, *names.unsynced.pop(path, ())):
            if name in names:
                stored[name] = names[name]
            elif stored.pop(name, ...) is None:
                for each in _below(stored, name):  # they went with their folder
                    del stored[name + each]
        if self._renamed:
            self._renamed = [
                one for one in self._renamed if path not in (one[0], one[0].rpartition("/")[0])
            ]

    def sync_path(self, path: str) -> None:
        inode = self.names.get(path)
        if inode is None:
            self.step("sync", path)
        else:
            self.sync(inode, path)

    def read(self, path: str) -> bytes:
        if self.broken and self._within(self.broken, path):
            raise StorageFault(f"{path}: its disk is broken on purpose")
        return bytes(self.inode(path, create=False).seen)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """A new file takes the name."""
        self._check_folder(path)
        inode = _Inode()
        self.write(inode, path, 0, data)
        if sync:
            inode.sync()
        self.names[path] = inode
        if sync:
            self.stored_names[path] = inode

    def make_empty(self, path: str) -> None:
        """It reaches memory alone, so that no disk can refuse it."""
        self._check_folder(path)
        self.names.setdefault(path, _Inode())

    def size(self, path: str) -> int:
        inode = self.names.get(path)
        return len(inode.seen) if inode is not None else 0

    def modified_ms(self, path: str) -> int:
        inode = self.names.get(path)
        return inode.modified_ms if inode is not None else 0

    def free_bytes(self, path: str) -> int:
        folder = self._within(self.rooms, path) if self.rooms else ""
        return max(0, min(self.free, self.rooms[folder] if folder else UNLIMITED))

    def volume_bytes(self, path: str) -> int:
        """The same for each folder."""
        self.step("volume", path)
        return VOLUME_BYTES

    def reserve(self, path: str, size_bytes: int) -> None:
        """Kept apart from the files, and found again by the next process."""
        self.step("reserve", path)
        more = size_bytes - self.reserves.get(path, 0)
        if more > self.free_bytes(path):
            raise DiskFull(f"{path}: no space left on purpose")
        self._take(path, more)
        self.reserves[path] = size_bytes

    def give_back(self, path: str) -> bool:
        size_bytes = self.reserves.pop(path, 0)
        self._take(path, -size_bytes)
        return size_bytes > 0


def _below(names: dict[str, _Inode | None], path: str) -> dict[str, _Inode | None]:
    """What lies in a folder, by the rest of its path."""
    found = [name for name in names if name.startswith(path + "/")]
    return {name[len(path) :]: names[name] for name in found}
