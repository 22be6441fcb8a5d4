"""Walking the batches of a segment file from a position: start, recovery, truncation, rebuilding.

Reads a chunk at a time and waits for the disk, so it is not for the read path. The walk ends at
the end of the file or raises BadBatch at the first byte that is not a sound batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.batch import BATCH_OVERHEAD, MAGIC, BatchHeader, crc_is_valid, read_header

CHUNK_BYTES = 1 << 20  # large enough that the system call is small beside the checksum


class Readable(Protocol):
    """What a walk needs of a file."""

    def read_blocking(self, position: int, length: int) -> bytes | bytearray | memoryview:
        """See File."""


class BadBatch(Exception):
    """Bytes at `position` that are not a whole, sound batch of this segment."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"at position {position}: {why}")
        self.position = position
        self.why = why


def sound_header(buffer: memoryview, at: int, position: int) -> BatchHeader:
    """The header at `at`, which is `position` in the file; raises BadBatch."""
    try:
        header = read_header(buffer, at)
    except ProtocolError as problem:
        raise BadBatch(position, str(problem)) from None
    if header.magic != MAGIC:
        raise BadBatch(position, f"magic is {header.magic}, not {MAGIC}")
    if header.size_bytes < BATCH_OVERHEAD or header.last_offset_delta < 0 or header.base_offset < 0:
        raise BadBatch(position, "size or offsets are impossible")
    return header


def scan(
    file: Readable, size: int, position: int = 0, *, check_crc: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every batch in `[position, size)`; raises BadBatch."""
    wanted = CHUNK_BYTES
    while position < size:
        chunk = memoryview(file.read_blocking(position, min(wanted, size - position)))
        at, wanted = 0, CHUNK_BYTES
        while len(chunk) - at >= BATCH_OVERHEAD:
            header = sound_header(chunk, at, position + at)
            end = at + header.size_bytes
            if end > len(chunk):
                if position + end > size:
                    raise BadBatch(position + at, "the batch is incomplete")
                wanted = max(CHUNK_BYTES, header.size_bytes)
                break
            if check_crc and not crc_is_valid(chunk, at, header.size_bytes):
                raise BadBatch(position + at, "the checksum does not match")
            yield position + at, header
            at = end
        if at == 0 and len(chunk) < min(wanted, size - position, BATCH_OVERHEAD):
            raise BadBatch(position, "the file is shorter than it was")
        if at == 0 and size - position < BATCH_OVERHEAD:
            raise BadBatch(position, "the batch is incomplete")
        position += at
