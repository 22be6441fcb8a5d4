"""The memory that the connections of one loop share while they receive.

What: the buffer into which each read of a socket goes, and the count of bytes of requests that are
not run yet. Rule kept: where `queued.max.request.bytes` is set, a connection that would hold more
than that waits for its turn. Not here: frames (`connection.py`).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Protocol

from anabranch.client.buffers import BufferPool

SHARED_BUFFER_BYTES = 128 << 10
"""Room for a small frame that is nearly there and a good read behind it."""


class Receiver(Protocol):
    """A connection, as far as it waits for memory."""

    def memory_freed(self) -> None:
        """It may begin to hold more."""


class ReceiveMemory:
    """What some connections of one loop receive into, one after the other.

    `held_bytes` are of frames that are large and not all there, or whole and not run: requests that
    wait for something that other requests bring are not among them, or these could never come. From
    `limit_bytes` on (none when it is not positive) nobody begins to hold more: the last one to
    begin may pass the limit, as in Kafka. `arrived_bytes` have come of large frames that are not
    whole."""

    __slots__ = (
        "_limit_bytes", "_waiting", "arrived_bytes", "buffer", "held_bytes", "pool", "view",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = -1) -> None:
        self.buffer = bytearray(SHARED_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.pool = BufferPool()
        self.held_bytes = self.arrived_bytes = 0
        self._limit_bytes = limit_bytes if limit_bytes > 0 else sys.maxsize
        self._waiting: dict[Receiver, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether nobody may begin to hold more."""
        return self.held_bytes >= self._limit_bytes

    def wait(self, connection: Receiver) -> None:
        """Call a connection's `memory_freed` in its turn."""
        self._waiting[connection] = None

    def release(self, size: int, leaving: Receiver | None = None) -> None:
        """Some bytes are held no more; `leaving` waits for none either."""
        self.held_bytes -= size
        if self._waiting:
            if leaving is not None:
                self._waiting.pop(leaving, None)
            if not self.is_full:
                asyncio.get_running_loop().call_soon(self._let_go_on)

    def _let_go_on(self) -> None:
        while self._waiting and not self.is_full:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.memory_freed()
