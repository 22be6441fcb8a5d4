"""Reading much of the metadata at once without the garbage collector.

What: `without_collector` holds it off, `QuietReader` reads snapshots and large pieces of the log
so. Why: a snapshot makes hundreds of thousands of objects, all of which stay and none of which is
in a cycle; the collector would walk them again and again, and took two thirds of the time that
100,000 access rules need. Rule kept: threads that hold it off at the same time let it go on
together. Not here: what is read (`core/metadata/following/replayer.py`).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from anabranch.core.metadata.batches import MetadataBatch
from anabranch.core.metadata.following.replayer import PlainBatchReader
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.types import Buffer

MANY_BYTES = 1 << 18
"""Of log that is replayed at once; for less it is not worth a word."""


class _Holders:
    """How many hold it off now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_on = False


_HOLDERS = _Holders()


@contextmanager
def without_collector() -> Iterator[None]:
    """Hold the collector off; it is as before when the last one ends that does."""
    with _HOLDERS.lock:
        if not _HOLDERS.count:
            _HOLDERS.was_on = gc.isenabled()
            gc.disable()
        _HOLDERS.count += 1
    try:
        yield
    finally:
        with _HOLDERS.lock:
            _HOLDERS.count -= 1
            if not _HOLDERS.count and _HOLDERS.was_on:
                gc.enable()


class QuietReader(PlainBatchReader):
    """Reads as every node does, and much at once without the collector."""

    def replay(
        self, image: MetadataImage, batches: Sequence[MetadataBatch], payload: Buffer
    ) -> tuple[MetadataImage, MetadataDelta]:
        if len(memoryview(payload)) < MANY_BYTES:
            return super().replay(image, batches, payload)
        with without_collector():
            return super().replay(image, batches, payload)

    def image_of(self, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
        with without_collector():
            return super().image_of(payload, end_offset, epoch)


QUIET = QuietReader()
