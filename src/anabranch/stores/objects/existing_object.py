"""Whether an object whose name is taken is what was to be put.

What: an earlier attempt may have arrived without its answer; then the put has succeeded. Rule kept:
every byte is compared, since a coordinator that was put back from an older copy gives names a
second time: the object may be another broker's, and be committed. Read in pieces, so that the
comparison needs little memory and no request is long. Not here: what a put does otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.core.diskless.objects import ObjectStore
from anabranch.core.types import Buffer

PIECE_BYTES = 1 << 20
"""At least, but for the last one; at most twice that."""


async def holds(store: ObjectStore, key: str, buffers: Sequence[Buffer]) -> bool:
    """Whether the object has exactly these bytes. Raises StorageFault."""
    if await store.size(key) != sum(map(len, buffers)):
        return False
    position = 0
    for piece in _pieces(buffers):
        [held] = await store.read(key, [(position, len(piece))])
        if bytes(held) != piece:
            return False
        position += len(piece)
    return True


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
