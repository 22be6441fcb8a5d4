"""Whether an object whose name is taken is what was to be put.

What: an earlier attempt may have arrived without its answer; then the put has succeeded. Rule kept:
every byte is compared, since a coordinator that was put back from an older copy gives names a
second time: the object may be another broker's, and be committed. Read in pieces, so that the
comparison needs little memory and no request is long. Not here: what a put does otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from anabranch.core.diskless.objects import ObjectStore, Source
from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer

PIECE_BYTES = 1 << 20
"""At least, but for the last one; at most twice that."""


async def holds(store: ObjectStore, key: str, buffers: Sequence[Buffer]) -> bool:
    """Whether the object has exactly these bytes. Raises StorageFault."""
    return await holds_large(store, key, _Buffers(buffers))


async def holds_large(store: ObjectStore, key: str, source: Source) -> bool:
    """The same for an object that is not in memory. Raises what the source raises, too."""
    if await store.size(key) != source.byte_size:
        return False
    position = 0
    async for piece in whole(source):
        [held] = await store.read(key, [(position, len(piece))])
        if bytes(held) != piece:
            return False
        position += len(piece)
    return True


async def whole(source: Source) -> AsyncIterator[Buffer]:
    """The pieces of a large object that have any bytes. Raises StorageFault at the end where they
    are not as many as was said, so that no object of another size gets a name."""
    left = source.byte_size
    async for piece in source.pieces():
        left -= len(piece)
        if len(piece):
            yield piece
    if left:
        raise StorageFault(
            f"an object of {source.byte_size} bytes was to be stored, and its source gave "
            f"{source.byte_size - left}; what it is read from has changed"
        )


class _Buffers:
    """An object in memory, in pieces."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.byte_size = sum(map(len, buffers))
        self._buffers = buffers

    async def pieces(self) -> AsyncIterator[Buffer]:
        for piece in _pieces(self._buffers):
            yield piece


def _pieces(buffers: Sequence[Buffer]) -> Iterator[bytes]:
    piece = bytearray()
    for buffer in buffers:
        view = memoryview(buffer)
        for start in range(0, len(view), PIECE_BYTES):
            piece += view[start : start + PIECE_BYTES]
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)
