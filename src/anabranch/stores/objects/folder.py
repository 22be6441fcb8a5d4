"""`file:///folder`: objects as files, for one machine or a shared file system.

What: each object is written under a temporary name, synced, linked to its own name, and its folder
is synced. Why our own: obstore's local store never syncs. Rules kept: `put` returns when a power
cut can no longer take the object; link(2) refuses a name that exists, so that nothing is replaced,
whichever process comes second; a reader sees no part of an object, since its name comes last.
Every call runs in threads of the store's own; the loop never waits for the disk. Not here: what is
in an object, whether the store is this cluster's (`store_check.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from anabranch.core.diskless.claim import SETTING
from anabranch.core.diskless.objects import (
    Listed,
    ObjectMissing,
    ObjectsAway,
    ObjectTaken,
    Source,
)
from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer
from anabranch.stores.disk import BUFFERS_A_WRITE, NO_SPACE, sync_folder
from anabranch.stores.objects.existing_object import holds, holds_large, whole
from anabranch.stores.objects.keys import check_key, short_object
from anabranch.stores.objects.store_check import check_store

FOLDER = "file://"
INCOMING = ".incoming"
"""Temporary files; a key's parts never begin with a dot."""
THREADS = 16
"""As many objects are written and read at once; a disk gains nothing from more."""
PATIENCE_S = 30.0
"""A disk that does not answer for so long is away; a network file system may come back."""
LEFTOVER_S = 3600
"""A temporary file of this age belongs to no put: each is given up long before."""
LIST_PAGE = 1000
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_T = TypeVar("_T")


async def open_folder(url: str, setting: str = SETTING) -> FolderStore:
    """The store of a `file://` URL, freed from what an earlier life left behind. Raises
    StorageFault when the URL or the folder is wrong."""
    path = url.removeprefix(FOLDER)
    if not path.startswith("/"):
        raise StorageFault(
            f"{setting}={url}: the folder's path must be absolute, "
            "as in file:///var/lib/anabranch/objects"
        )
    store = FolderStore(url, path.rstrip("/") or "/")
    try:
        await store.remove_leftovers()
    except BaseException:
        await store.close()
        raise
    return store


class FolderStore:
    """Objects in a folder that exists."""

    def __init__(self, url: str, path: str) -> None:
        self.url = url
        self._path = path
        self._incoming = os.path.join(path, INCOMING)
        self._synced: set[str] = set()
        """Folders whose names are durable, made by whatever process."""
        self._threads = ThreadPoolExecutor(THREADS, f"objects of {path}")

    async def _run(self, call: Callable[[], _T]) -> _T:
        """A call in a thread; what the disk says becomes a sentence."""
        done = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            async with asyncio.timeout(PATIENCE_S):  # wait_for may lose a cancellation
                return await done
        except TimeoutError:
            raise ObjectsAway(
                f"{self.url}: the disk has not answered for {PATIENCE_S:g} s; "
                "check the disk, or the network if the folder is on a network file system"
            ) from None
        except OSError as problem:
            raise self._fault(problem) from None

    def _fault(self, problem: OSError) -> StorageFault:
        place = f"{self.url}: {problem.filename or self._path}: {problem.strerror or problem}"
        if problem.errno in NO_SPACE:
            return ObjectsAway(
                f"{place}; free space on the volume, or shorten the retention of topics"
            )
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return StorageFault(f"{place}; allow the broker's user to write to this folder")
        if problem.errno in (errno.ENOENT, errno.ENOTDIR):
            return StorageFault(f"{place}; create the folder, or mount its volume")
        return StorageFault(f"{place}; check the disk")

    async def remove_leftovers(self) -> None:
        """Remove temporary files of puts that were cut off long ago. At each start and listing: a
        broker that was killed within a put may be back before its file is old."""
        await self._run(self._remove_leftovers)

    def _remove_leftovers(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._incoming)
        before = time.time() - LEFTOVER_S
        with os.scandir(self._incoming) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # another broker starts too
                    if file.stat().st_mtime < before:
                        os.unlink(file.path)

    def _place(self, key: str) -> str:
        check_key(key, self.url)
        return os.path.join(self._path, key)

    async def put(self, key: str, buffers: Sequence[Buffer]) -> None:
        place = self._place(key)
        try:
            await self._run(lambda: self._put(key, place, buffers))
        except ObjectTaken:
            if not await holds(self, key, buffers):
                raise

    def _put(self, key: str, place: str, buffers: Sequence[Buffer]) -> None:
        temporary = os.path.join(self._incoming, uuid.uuid4().hex)
        try:
            write_synced(temporary, buffers)
        except OSError:
            _remove(temporary)
            raise
        self._name(key, temporary, place)

    async def put_large(self, key: str, source: Source) -> None:
        place = self._place(key)
        temporary = os.path.join(self._incoming, uuid.uuid4().hex)
        try:
            await self._write_pieces(temporary, source)
            await self._run(lambda: self._name(key, temporary, place))
        except ObjectTaken:
            if not await holds_large(self, key, source):
                raise
        finally:
            with contextlib.suppress(StorageFault):  # else it goes with the leftovers
                await self._run(lambda: _remove(temporary))

    async def _write_pieces(self, temporary: str, source: Source) -> None:
        """Write and sync piece by piece: no call is long, whatever the disk."""
        size = 0
        await self._run(partial(write_at, temporary, 0, b""))
        async for piece in whole(source):
            await self._run(partial(write_at, temporary, size, piece))
            size += len(piece)

    def _name(self, key: str, temporary: str, place: str) -> None:
        """Give what was written and synced its name, unless that is taken."""
        folder = os.path.dirname(place)
        try:
            self._make_folder(folder)
            os.link(temporary, place)
        except FileExistsError:
            sync_folder(folder)  # an earlier attempt may have failed here
            raise ObjectTaken(f"{self.url}: object {key} exists") from None
        except OSError as problem:
            if problem.errno in _NO_LINKS and problem.filename2:
                raise StorageFault(
                    f"{self.url}: this file system does not support hard links, which prevent the "
                    "replacement of objects; use another one"
                ) from None
            raise
        finally:
            _remove(temporary)
        sync_folder(folder)

    def _make_folder(self, folder: str) -> None:
        """Make a folder below the root, and have its name survive a power cut."""
        if folder in self._synced or folder == self._path:
            return
        above = os.path.dirname(folder)
        self._make_folder(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        sync_folder(above)  # also if another process has made it: has it synced, too?
        self._synced.add(folder)

    async def read(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        place = self._place(key)
        return await self._run(lambda: self._read(key, place, ranges))

    def _read(self, key: str, place: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        with self._missing(key):
            handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return [self._range(handle, key, *each) for each in ranges]
        finally:
            os.close(handle)

    def _range(self, handle: int, key: str, position: int, length: int) -> Buffer:
        held = os.pread(handle, length, position)
        while len(held) < length:
            more = os.pread(handle, length - len(held), position + len(held))
            if not more:
                size = os.fstat(handle).st_size
                raise short_object(self.url, key, size, position, length)
            held += more
        return held

    @contextlib.contextmanager
    def _missing(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            os.stat(self._path)  # the whole folder may be gone, which is said otherwise
            raise ObjectMissing(f"{self.url}: there is no object {key}") from None

    async def size(self, key: str) -> int:
        place = self._place(key)

        def stat() -> int:
            with self._missing(key):
                return os.stat(place).st_size

        return await self._run(stat)

    async def delete(self, keys: Sequence[str]) -> list[str]:
        places = [self._place(key) for key in keys]
        await self._run(lambda: self._delete(places))
        return list(keys)

    def _delete(self, places: Sequence[str]) -> None:
        folders = set()
        for place in places:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(place)
                folders.add(os.path.dirname(place))
        for folder in folders:
            sync_folder(folder)  # or a power cut would bring objects back that are forgotten

    async def list(self, prefix: str) -> AsyncIterator[list[Listed]]:
        await self.remove_leftovers()
        found = _walk(self._path, "", prefix)
        while page := await self._run(lambda: list(itertools.islice(found, LIST_PAGE))):
            yield page

    async def check(self, cluster_id: str) -> None:
        await check_store(self, cluster_id)

    async def close(self) -> None:
        """What threads do now ends by itself."""
        self._threads.shutdown(wait=False)


def write_at(path: str, position: int, piece: Buffer) -> None:
    """Write a piece of a file, which is made if need be, and sync it. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(piece)
        while rest:
            written = os.pwrite(handle, rest, position)
            rest, position = rest[written:], position + written
        os.fsync(handle)
    except OSError as problem:
        problem.filename = problem.filename or path
        raise
    finally:
        os.close(handle)


def _remove(temporary: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(temporary)


def write_synced(path: str, buffers: Sequence[Buffer]) -> None:
    """Write buffers one after the other into a new file, and sync it. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for start in range(0, len(buffers), BUFFERS_A_WRITE):
            rest = [memoryview(each) for each in buffers[start : start + BUFFERS_A_WRITE]]
            while rest:
                rest = _after(rest, os.writev(handle, rest))
        os.fsync(handle)
    except OSError as problem:
        problem.filename = problem.filename or path
        raise
    finally:
        os.close(handle)


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What is left of buffers of which so many bytes were written."""
    for at, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[at + 1 :]]
        count -= len(buffer)
    return []


def _walk(root: str, folder: str, prefix: str) -> Iterator[Listed]:
    """Files below a folder whose keys begin with a prefix, by key as a store in a cloud has it:
    `a/` comes after `a-`."""
    with os.scandir(os.path.join(root, folder)) as entries:
        names = sorted(
            f"{each.name}/" if each.is_dir() else each.name
            for each in entries
            if not each.name.startswith(".")
        )
    for name in names:
        key = folder + name
        if name.endswith("/"):
            if key.startswith(prefix) or prefix.startswith(key):
                yield from _walk(root, key, prefix)
        elif key.startswith(prefix):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                held = os.stat(os.path.join(root, key))
                yield Listed(key, held.st_size, held.st_mtime_ns // 1_000_000)
