"""Bytes to frames: what one connection receives, each large frame into memory of its own.

    frame := size int32, then `size` bytes

Why two ways, as in the server: small frames arrive many at a time and are copied out of one buffer;
a frame above `LARGE_FRAME_BYTES` is received straight into pooled memory, so that megabytes of
records are not copied once more. Rule kept: nobody else writes to a frame while somebody holds a
slice of it. Not here: what a frame says.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from anabranch.client.buffers import BufferPool
from anabranch.core.types import SIZE_BYTES, Buffer

BUFFER_BYTES = 64 << 10
"""What the event loop reads at a time at most, unless it is given more room."""
LARGE_FRAME_BYTES = 32 << 10
ANSWER_BYTES_MAX = 1 << 30
"""An answer that claims more is not an answer: the port speaks something else."""

_SIZE = Struct(">i").unpack_from


class NotAFrame(Exception):
    """The bytes are no frames: the other side speaks another protocol."""


class Receiver:
    """The frames of one connection. Give `room` to the transport, and `received` what it took."""

    __slots__ = ("_buffer", "_filled", "_frame", "_kept", "_pool")

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._kept = 0
        self._frame: memoryview | None = None
        self._filled = 0
        self._pool = BufferPool()

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._buffer[self._kept :]

    def received(self, size: int) -> Iterator[Buffer]:
        """The whole frames that are there after `size` more bytes. Raises NotAFrame."""
        frame = self._frame
        if frame is None:
            yield from self._cut(self._kept + size)
            return
        self._filled += size
        if self._filled == len(frame):
            self._frame = None
            yield frame

    def _cut(self, end: int) -> Iterator[Buffer]:
        buffer, position = self._buffer, 0
        self._kept = 0
        while end - position >= SIZE_BYTES:
            (size,) = _SIZE(buffer, position)
            if not SIZE_BYTES <= size <= ANSWER_BYTES_MAX:
                raise NotAFrame
            start = position + SIZE_BYTES
            if start + size > end:
                if size > LARGE_FRAME_BYTES:
                    self._begin_large(size, buffer[start:end])
                    return
                break
            position = start + size
            yield bytes(buffer[start:position])
        kept = end - position
        if kept and position:
            buffer[:kept] = bytes(buffer[position:end])
        self._kept = kept

    def _begin_large(self, size: int, received: memoryview) -> None:
        self._frame = self._pool.take(size)
        self._filled = len(received)
        self._frame[: self._filled] = received
