"""A TCP proxy before a store, whose link can be slow, silent, deaf to answers, or broken.

What: each connection is passed on to one port, in pieces; `condition` says how the link is now, for
connections that exist and for new ones. Why a proxy: a store that is away does not always refuse.
It may answer late, take bytes slowly, take a connection and never answer, or do what it was asked
and lose the answer; each is another path through a client. Rules kept: bytes are passed in their
order or not at all; what is held while the link is silent is passed on afterwards, as after a
partition; memory for one connection is bounded. Not here: what is spoken on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import NamedTuple

PIECE_BYTES = 64 << 10
CUT_NOW = struct.pack("ii", 1, 0)
"""SO_LINGER: the other end is told by a reset."""


class Condition(NamedTuple):
    """How a link is."""

    delay_ms: int = 0
    """Before the first piece of a request, and of an answer."""
    bytes_per_second: int = 0
    """Of all connections together; 0: as fast as it goes."""
    is_silent: bool = False
    """Connections are taken, and nothing passes."""
    is_deaf: bool = False
    """Requests pass; their answers do not, and are lost."""
    is_broken: bool = False
    """Connections are reset."""


WELL = Condition()


class SlowLink:
    """See the module. `port` is where clients connect, once `start` has returned."""

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        self._target_port, self._host = target_port, host
        self._condition = WELL
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._free_s = 0.0
        """When the bytes that passed so far have passed at the rate that holds."""
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        server = await asyncio.start_server(
            self._serve, self._host, 0, limit=PIECE_BYTES, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]

    def become(self, condition: Condition) -> None:
        """From now on the link is like this."""
        was, self._condition = self._condition, condition
        if condition.is_broken or was.is_deaf:
            for writer in tuple(self._writers):
                _reset(writer)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._condition.is_broken:
                return
            inner, outer = await asyncio.open_connection(
                self._host, self._target_port, limit=PIECE_BYTES
            )
            with contextlib.closing(outer):
                await asyncio.gather(
                    self._pass(reader, outer, is_answer=False),
                    self._pass(inner, writer, is_answer=True),
                )
        except OSError:
            pass  # one end is gone: so is the other
        finally:
            self._writers.discard(writer)
            _reset(writer)

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        now_s = asyncio.get_running_loop().time
        last_s = 0.0
        while piece := await source.read(PIECE_BYTES):
            delay_s = self._condition.delay_ms / 1000
            if now_s() - last_s > delay_s:
                await asyncio.sleep(delay_s)
            await self._in_turn(len(piece))
            await self._while_held(is_answer=is_answer)
            target.write(piece)
            await target.drain()
            last_s = now_s()
        await self._while_held(is_answer=is_answer)
        if target.can_write_eof():
            target.write_eof()

    async def _while_held(self, *, is_answer: bool) -> None:
        while self._condition.is_silent or (is_answer and self._condition.is_deaf):
            await self._changed.wait()

    async def _in_turn(self, size: int) -> None:
        """Wait as long as so many bytes take after those before them."""
        if rate := self._condition.bytes_per_second:
            now_s = asyncio.get_running_loop().time()
            self._free_s = max(now_s, self._free_s) + size / rate
            await asyncio.sleep(self._free_s - now_s)


def _reset(writer: asyncio.StreamWriter) -> None:
    held = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError, ValueError):  # it is closed
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT_NOW)
    writer.transport.abort()
