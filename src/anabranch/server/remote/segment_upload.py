"""Puts the objects of one try to copy a segment.

What: the batches from their file, a piece at a time, then the small files, then the sidecar.
Rules kept: files are read in threads, at the broker's pace; before each piece and each object the
lease of the try is looked at, and the coordinator is asked again when the last answer is old; a
coordinator that is away for less than a lease ends no copy. The file stays open, so that a segment
that is deleted meanwhile is still read as it was. Not here: the order of a try's calls
(`core/remote/segment_copy.py`), what the files are (`core/remote/segment_files.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.objects import ObjectStore, Source
from anabranch.core.errors import StorageFault
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.segment_files import SegmentFiles
from anabranch.core.remote.segments import RemoteSegment
from anabranch.core.remote.sidecar import encode_sidecar
from anabranch.core.remote.unfinished import CONFIRM_MS, may_go_on
from anabranch.core.types import Buffer

PIECE_BYTES = 1 << 20


class Lease:
    """Whether a try may go on, as far as is known. `stands` asks the coordinator."""

    def __init__(
        self, stands: Callable[[], Awaitable[bool]], asked_ms: int, clock: Callable[[], int]
    ) -> None:
        self._stands, self._asked_ms, self._clock = stands, asked_ms, clock

    async def check(self) -> None:
        """Raises TryEnded."""
        now_ms = self._clock()
        if now_ms - self._asked_ms >= CONFIRM_MS:
            try:
                if not await self._stands():
                    raise TryEnded("the copy of this segment was given up, or has a newer leader")
                self._asked_ms = now_ms
            except CoordinatorAway:
                pass  # the lease tells for how long
        if not may_go_on(self._asked_ms, self._clock()):
            raise TryEnded("the coordinator has not confirmed the copy of this segment for a lease")


class Upload(NamedTuple):
    """What an upload needs beside the segment."""

    objects: ObjectStore
    cluster_id: str
    topic: str
    lease: Lease
    pace: CopyPace
    clock: Callable[[], int]
    """Steady milliseconds."""

    async def run(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        """Put all objects of a try. Raises StorageFault; what was put then is removed with it."""
        folder = segment_folder(self.cluster_id, segment.key, segment.segment_id)
        first, *rest = upload_names(segment)
        source = FileSource(files.log_path, segment.byte_size, self._before)
        await self.objects.put_large(folder + first, source)
        for name in rest:
            is_sidecar = name == SIDECAR
            content = encode_sidecar(self.topic, segment) if is_sidecar else files.others[name]
            await self._before(len(content))
            await self.objects.put(folder + name, [content])

    async def _before(self, byte_size: int) -> None:
        wait_ms = self.pace.wait_ms(byte_size, self.clock())
        while wait_ms > 0:
            await self.lease.check()
            await asyncio.sleep(min(wait_ms, CONFIRM_MS) / 1000)
            wait_ms -= CONFIRM_MS
        await self.lease.check()


class FileSource(Source):
    """The first bytes of a file; `before` is awaited before each piece is read."""

    def __init__(self, path: str, byte_size: int, before: Callable[[int], Awaitable[None]]) -> None:
        self.byte_size = byte_size
        self._path, self._before = path, before

    async def pieces(self) -> AsyncIterator[Buffer]:
        handle = await asyncio.to_thread(self._open)
        try:
            for position in range(0, self.byte_size, PIECE_BYTES):
                length = min(PIECE_BYTES, self.byte_size - position)
                await self._before(length)
                yield await asyncio.to_thread(self._read, handle, position, length)
        finally:
            os.close(handle)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise self._fault(problem) from None

    def _read(self, handle: int, position: int, length: int) -> bytes:
        try:
            return os.pread(handle, length, position)  # a short one is noticed by its size
        except OSError as problem:
            raise self._fault(problem) from None

    def _fault(self, problem: OSError) -> StorageFault:
        return StorageFault(f"{self._path}: {problem.strerror}; the segment is not copied")
