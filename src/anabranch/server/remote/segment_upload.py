"""Puts the objects of one try to copy a segment.

What: the batches from their file, a piece at a time, and small files. Rules kept: files are read in
threads, at the broker's pace; before each piece and each object the lease of the try is looked at.
The file stays open, so that a segment that is deleted meanwhile is still read as it was. Not here:
which objects, in which order, and the lease (`core/remote/segment_upload.py`), what the files are
(`core/remote/segment_files.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import NamedTuple

from anabranch.core.diskless.objects import ObjectStore, Source
from anabranch.core.errors import StorageFault
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import RemoteFacts
from anabranch.core.remote.segment_upload import Lease, PutBatches, PutFile
from anabranch.core.remote.unfinished import CONFIRM_MS
from anabranch.core.types import Buffer
from anabranch.server.chains import carried_out

PIECE_BYTES = 1 << 20


class Upload(NamedTuple):
    """What an upload needs beside what is put."""

    objects: ObjectStore
    facts: RemoteFacts
    lease: Lease
    pace: CopyPace
    clock: Callable[[], int]
    """Steady milliseconds."""

    async def run(self, puts: Generator[PutBatches | PutFile, None, None]) -> None:
        """Put all objects of a try. Raises StorageFault; what was put then is removed with it."""
        await carried_out(puts, self._put)

    async def _put(self, asked: PutBatches | PutFile) -> None:
        if isinstance(asked, PutBatches):
            source = FileSource(asked.path, asked.byte_size, self._before)
            await self.objects.put_large(asked.object_key, source)
        else:
            await self._before(len(asked.content))
            await self.objects.put(asked.object_key, [asked.content])

    async def _before(self, byte_size: int) -> None:
        wait_ms = self.pace.wait_ms(byte_size, self.clock())
        while wait_ms > 0:
            await self._check()
            await asyncio.sleep(min(wait_ms, CONFIRM_MS) / 1000)
            wait_ms -= CONFIRM_MS
        await self._check()

    async def _check(self) -> None:
        await carried_out(self.lease.checked(), lambda asked: self.facts.stands(asked.segment))


class FileSource(Source):
    """The first bytes of a file; `before` is awaited before each piece is read. All pieces have the
    same memory: new pages for each cost more than reading."""

    def __init__(self, path: str, byte_size: int, before: Callable[[int], Awaitable[None]]) -> None:
        self.byte_size = byte_size
        self._path, self._before = path, before

    async def pieces(self) -> AsyncIterator[Buffer]:
        handle = await asyncio.to_thread(self._open)
        memory = memoryview(bytearray(min(PIECE_BYTES, self.byte_size)))
        try:
            for position in range(0, self.byte_size, PIECE_BYTES):
                piece = memory[: self.byte_size - position]
                await self._before(len(piece))
                count = await asyncio.to_thread(self._read, handle, position, piece)
                yield piece[:count]
        finally:
            os.close(handle)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise self._fault(problem) from None

    def _read(self, handle: int, position: int, piece: memoryview) -> int:
        try:
            return os.preadv(handle, [piece], position)  # a short one is noticed by its size
        except OSError as problem:
            raise self._fault(problem) from None

    def _fault(self, problem: OSError) -> StorageFault:
        return StorageFault(f"{self._path}: {problem.strerror}; the segment is not copied")
