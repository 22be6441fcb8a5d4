"""Real files: the disk behind `core.log`, one process, one writer.

What: reads that never wait for the disk on the event loop (preadv2 with RWF_NOWAIT; what is not in
the page cache raises ColdRead), positioned writes, a bounded number of open handles.
Why a bound: a node holds thousands of segments, and the oldest are hardly ever read. Rule kept: a
handle that a thread is using is not closed under it. Not here: deciding what is written, locking
folders (`folders.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anabranch.client.buffers import BufferPool
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import ColdRead, DiskFull
from anabranch.core.types import Buffer
from anabranch.server.loans import FileLoan, Lender
from anabranch.stores.disk import NO_SPACE, sync_folder, sync_path

OPEN_HANDLES = 4096
"""Enough for one active segment of a few thousand partitions; raised with the soft limit on
files."""
NO_NOWAIT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
WRITE_BYTES = 32 << 10
"""Most of one pwrite. A larger one makes the kernel look for larger runs of free memory for the
page cache, which costs several times what the copy does (ext4: 0.28 s of CPU a GB in pieces of
32 KB, 0.24 to 1.4 in 64 KB, 1 to 2.6 in 1 MB). Pieces end at multiples of it in the file: the page
cache takes such a piece as one run of pages, any other as several (0.45)."""
POOLED_READ_BYTES = 64 << 10
"""From here on memory that was read into before is cheaper than fresh memory, which the kernel has
to clear and map page by page."""
POOLED_READS = 64
"""A read's memory is in use until its answer has left: an answer to a follower that catches up
holds about ten reads of a megabyte, and 64 consumers that read at once hold one each."""
POOLED_READS_BYTES = 64 << 20
"""The most that such reads keep when nobody uses it."""
WARM_BYTES = 1 << 20
RESERVE = ".reserve"
"""The file that keeps space in a folder."""
_T = TypeVar("_T")
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_CLOSED = -1


def _fault(path: str, problem: OSError) -> StorageFault:
    kind = DiskFull if problem.errno in NO_SPACE else StorageFault
    return kind(f"{path}: {problem.strerror or problem}")


class RealFile:
    """One file, opened when it is first used and again after its handle was given back."""

    __slots__ = (
        "_files", "_refused", "_write", "create", "handle", "lent_end", "path", "pins", "used",
    )  # fmt: skip

    def __init__(self, files: RealFiles, path: str, *, create: bool, write: bool) -> None:
        self.path = path
        self._files = files
        self.create = create
        self._write = write
        self.handle = _CLOSED
        self.pins = 0
        self.used = False
        self.lent_end = 0
        """Bytes before it may still be on their way out of this very file."""
        self._refused: StorageFault | None = None
        """What the disk said to the last attempt to warm a range."""

    def open_handle(self, *, create: bool) -> int:
        """Open the file; the caller makes sure that there is room for one more."""
        flags = (os.O_RDWR if self._write else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        self.handle = os.open(self.path, flags, 0o644)
        return self.handle

    def _ready(self) -> int:
        """The handle, for the thread that owns the files."""
        self.used = True
        if self.handle != _CLOSED:
            return self.handle
        try:
            return self._files.admit(self)
        except OSError as problem:
            raise _fault(self.path, problem) from None

    def read(self, position: int, length: int) -> Buffer:
        """Raises ColdRead rather than wait for the disk."""
        if not self._files.nowait:
            return self.read_blocking(position, length)
        handle = self._ready()
        pooled = length >= POOLED_READ_BYTES
        held: Buffer = self._files.pool.take(length) if pooled else bytearray(length)
        try:
            count = os.preadv(handle, (held,), position, _NOWAIT)
        except BlockingIOError:
            raise self._cold(position, length) from None
        except OSError as problem:
            if problem.errno in NO_NOWAIT:
                self._files.nowait = False
                return self.read_blocking(position, length)
            raise _fault(self.path, problem) from None
        if count == length:
            return held
        if position + count >= self.size():
            return held[:count]
        raise self._cold(position, length)

    def lend(self, position: int, length: int) -> FileLoan | None:
        """Large parts that are in the page cache, a bounded number at a time."""
        if not self._files.nowait:
            return None
        loan = self._files.lender.lend(self._ready(), position, length)
        if loan is not None:
            self.lent_end = max(self.lent_end, position + length)
        return loan

    def _cold(self, position: int, length: int) -> ColdRead | StorageFault:
        """A read that has to be warmed first, unless the disk has just refused that."""
        refused, self._refused = self._refused, None
        return refused or ColdRead(self, position, length)

    def read_blocking(self, position: int, length: int) -> Buffer:
        handle = self._ready()
        try:
            held = os.pread(handle, length, position)
            while len(held) < length:
                more = os.pread(handle, length - len(held), position + len(held))
                if not more:
                    break
                held += more
        except OSError as problem:
            raise _fault(self.path, problem) from None
        return held

    def warm(self, position: int, length: int) -> None:
        """Reads the range and throws it away; a file that was removed has none."""
        try:
            self._pinned(lambda handle: self._read_through(handle, position, length))
        except FileNotFoundError:
            return
        except StorageFault as fault:
            self._refused = fault

    def _read_through(self, handle: int, position: int, length: int) -> None:
        end = position + length
        while position < end:
            count = len(os.pread(handle, min(WARM_BYTES, end - position), position))
            if count == 0:
                return
            position += count

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        handle = self._ready()
        try:
            if len(buffers) == 1 and len(buffers[0]) <= WRITE_BYTES:
                count = os.pwrite(handle, buffers[0], position)
                if count == len(buffers[0]):
                    return
                self._write_rest(handle, position + count, memoryview(buffers[0])[count:])
                return
            for buffer in buffers:
                self._write_rest(handle, position, memoryview(buffer))
                position += len(buffer)
        except OSError as problem:
            raise _fault(self.path, problem) from None

    @staticmethod
    def _write_rest(handle: int, position: int, rest: memoryview) -> None:
        while rest:
            count = os.pwrite(handle, rest[: WRITE_BYTES - position % WRITE_BYTES], position)
            position += count
            rest = rest[count:]

    def size(self) -> int:
        try:
            return os.fstat(self._ready()).st_size
        except OSError as problem:
            raise _fault(self.path, problem) from None

    def truncate(self, size: int) -> None:
        """Where more was lent, the name gets another file: who still receives that, reads
        pages of this one, also those that lie in the buffer of a socket."""
        handle = self._ready()
        try:
            if size >= self.lent_end:
                os.ftruncate(handle, size)
                return
            replace_by_part(self.path, handle, size)
            self.lent_end = 0
        except OSError as problem:
            if size < self.lent_end:  # a full disk, too: only a restart may cut this file
                raise StorageFault(f"{self.path}: {problem.strerror or problem}") from None
            raise _fault(self.path, problem) from None

    def sync(self) -> None:
        try:
            self._pinned(os.fdatasync)
        except FileNotFoundError as problem:
            raise _fault(self.path, problem) from None

    def _pinned(self, use: Callable[[int], _T]) -> _T:
        """Use the handle in any thread; a file that was removed meanwhile is not made again."""
        try:
            with self._files.lock:
                handle = self.handle
                if handle == _CLOSED:
                    handle = self.open_handle(create=False)
                    self._files.count_one(self)
                self.pins += 1
            try:
                return use(handle)
            finally:
                with self._files.lock:
                    self.pins -= 1
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise _fault(self.path, problem) from None

    def close(self) -> None:
        """A handle that a thread is using is closed by a later eviction."""
        with self._files.lock:
            if self.handle != _CLOSED and not self.pins:
                os.close(self.handle)
                self.handle = _CLOSED
                self._files.open_count -= 1


class RealFiles:
    """The tree of real files. `open_limit` bounds handles; names not used for longest go first."""

    def __init__(self, open_limit: int = OPEN_HANDLES) -> None:
        self.open_limit = open_limit
        self.open_count = 0
        self.lock = threading.Lock()
        self.pool = BufferPool(POOLED_READS, POOLED_READS_BYTES)
        self.lender = Lender()
        self.nowait = bool(_NOWAIT) and hasattr(os, "preadv")
        self._opened: deque[RealFile] = deque()

    def admit(self, file: RealFile) -> int:
        """Open a file's handle, closing others when there are too many (second chance)."""
        with self.lock:
            if file.handle != _CLOSED:
                return file.handle
            while self.open_count >= self.open_limit and self._opened:
                self._evict_one()
            handle = file.open_handle(create=file.create)
            self.count_one(file)
            return handle

    def count_one(self, file: RealFile) -> None:
        """Note an opened handle; called with the lock held."""
        self.open_count += 1
        self._opened.append(file)
        if len(self._opened) > 2 * self.open_limit:
            self._opened = deque(dict.fromkeys(one for one in self._opened if one.handle >= 0))

    def _evict_one(self) -> None:
        for _ in range(2 * len(self._opened)):
            file = self._opened.popleft()
            if file.handle == _CLOSED:
                return
            if file.pins or file.used:
                file.used = False
                self._opened.append(file)
                continue
            os.close(file.handle)
            file.handle = _CLOSED
            self.open_count -= 1
            return
        self.open_limit += 1  # every handle is in a thread's hands

    def open(self, path: str, *, create: bool = False, write: bool = True) -> RealFile:
        return RealFile(self, path, create=create, write=write)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise _fault(path, problem) from None

    def make_dirs(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            self._attempt(path, lambda: os.makedirs(path, exist_ok=True))
        except OSError as problem:
            raise _fault(path, problem) from None

    def rename(self, source: str, target: str) -> None:
        self._attempt(source, lambda: os.replace(source, target))

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise _fault(path, problem) from None

    def remove_tree(self, path: str) -> None:
        self._attempt(path, lambda: remove_folder(path))

    def sync_dir(self, path: str) -> None:
        self._attempt(path, lambda: sync_folder(path))

    def sync_path(self, path: str) -> None:
        try:
            sync_path(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise _fault(path, problem) from None

    def read(self, path: str) -> bytes:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(handle, os.fstat(handle).st_size)
            finally:
                os.close(handle)
        except OSError as problem:
            raise _fault(path, problem) from None

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        """A temporary file beside it, then a rename."""
        self._attempt(path, lambda: replace_file(path, data, sync=sync))

    def make_empty(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._attempt(path, lambda: os.close(os.open(path, flags, 0o644)))

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0
        except OSError as problem:
            raise _fault(path, problem) from None

    def modified_ms(self, path: str) -> int:
        return self._attempt(path, lambda: os.stat(path).st_mtime_ns // 1_000_000)

    def free_bytes(self, path: str) -> int:
        return self._attempt(path, lambda: shutil.disk_usage(path).free)

    def volume_bytes(self, path: str) -> int:
        return self._attempt(path, lambda: shutil.disk_usage(path).total)

    def reserve(self, path: str, size_bytes: int) -> None:
        name = os.path.join(path, RESERVE)
        try:
            self._attempt(path, lambda: _allocate(name, size_bytes))
        except StorageFault:
            self.remove(name)
            raise

    def give_back(self, path: str) -> bool:
        name = os.path.join(path, RESERVE)
        was_there = os.path.exists(name)
        self.remove(name)
        return was_there

    @staticmethod
    def _attempt(path: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except OSError as problem:
            raise _fault(path, problem) from None


def remove_folder(path: str) -> None:
    """Remove a folder and what is in it, of a link the link alone. What is not there, or goes
    meanwhile, is no fault. Raises OSError."""
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_call: object, _path: str, fault: Any) -> None:
    if not isinstance(fault[1], FileNotFoundError):
        raise fault[1]


def replace_by_part(path: str, handle: int, size: int) -> None:
    """Have a file's name, and its open handle, stand for a new file with its first bytes, safely
    stored. Raises OSError."""
    temporary = path + ".tmp"
    part = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        position = 0
        while position < size:
            count = os.sendfile(part, handle, position, size - position)
            if count == 0:
                raise OSError(errno.EIO, f"the file ends before {size} bytes")
            position += count
        os.fsync(part)
        os.replace(temporary, path)
        sync_folder(os.path.dirname(path) or ".")
        os.dup2(part, handle, inheritable=False)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(part)


def _allocate(path: str, size_bytes: int) -> None:
    """Have a file own so many bytes of its volume. Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, min(size_bytes, os.fstat(handle).st_size))
        if not size_bytes:
            return
        try:
            os.posix_fallocate(handle, 0, size_bytes)
        except OSError as problem:
            if problem.errno not in NO_NOWAIT:
                raise
            for start in range(0, size_bytes, WARM_BYTES):  # where files cannot be allocated
                os.pwrite(handle, bytes(min(WARM_BYTES, size_bytes - start)), start)
    finally:
        os.close(handle)


def replace_file(path: str, data: bytes, *, sync: bool) -> None:
    """Replace a small file by way of another name; with `sync`, whenever the power goes, the old
    bytes or the new ones are there, and the new ones once this returns. Raises OSError."""
    temporary = path + ".tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
    if sync:
        sync_folder(os.path.dirname(path) or ".")
