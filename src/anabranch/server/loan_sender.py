"""Sends an answer of which parts are lent out of files, past the transport of its connection.

Why past it: uvloop's transports cannot send a file. The transport has nothing to send meanwhile, so
that the two never write at the same time; whoever owns the connection gives it nothing until
`ended` was called. Rules kept: the socket takes what it can, and the loop says when it can take
more; a part that has left the page cache meanwhile is brought back in a thread. A part that cannot
be sent any more ends the connection: its length has been promised. Not here: what is sent
afterwards.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from anabranch.core.types import Buffer, Piece
from anabranch.server.loans import FileLoan


class LoanSender:
    """One answer, or some that follow each other, on their way."""

    __slots__ = ("_ended", "_is_waiting", "_parts", "_sent", "_socket", "left_bytes")

    def __init__(
        self, transport: Any, pieces: Sequence[Piece], ended: Callable[[BaseException | None], None]
    ) -> None:
        """`ended` is called once, with what went wrong or None, unless `start` sends everything or
        raises. Raises OSError."""
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        self._ended = ended
        self._parts = deque(joined(pieces))
        self._sent = 0
        self._is_waiting = False
        self.left_bytes = sum(map(len, pieces))

    def start(self) -> bool:
        """Send what the socket takes; whether that was all. Raises OSError."""
        try:
            is_all = self._send()
        except OSError:
            self.stop()
            raise
        if is_all:
            self.stop()
        return is_all

    def stop(self) -> None:
        """Send no more."""
        self._wait(is_waiting=False)
        self._parts.clear()
        self._socket.close()

    def _send(self) -> bool:
        parts = self._parts
        while parts:
            part = parts[0]
            try:
                if isinstance(part, FileLoan):
                    count = part.send(self._socket.fileno(), self._sent)
                else:
                    more = socket.MSG_MORE if len(parts) > 1 else 0
                    count = self._socket.send(memoryview(part)[self._sent :], more)
            except BlockingIOError:
                self._wait(is_waiting=True)
                return False
            if not count:
                raise OSError("a file is shorter than what was lent of it")
            self._sent += count
            self.left_bytes -= count
            if self._sent == len(part):
                parts.popleft()
                self._sent = 0
        return True

    def _wait(self, *, is_waiting: bool) -> None:
        if is_waiting == self._is_waiting:
            return
        self._is_waiting = is_waiting
        loop = asyncio.get_running_loop()
        if is_waiting:
            loop.add_writer(self._socket, self._writable)
        else:
            loop.remove_writer(self._socket)

    def _writable(self) -> None:
        part = self._parts[0]
        if isinstance(part, FileLoan) and not part.is_in_memory(self._sent):
            self._wait(is_waiting=False)
            loop = asyncio.get_running_loop()
            warmed = loop.run_in_executor(None, part.warm, self._sent)
            warmed.add_done_callback(partial(self._warmed, part))
        else:
            self._go_on()

    def _warmed(self, _part: FileLoan, future: asyncio.Future[None]) -> None:
        """Go on. The part is named so that no thread is the last to let go of it."""
        if not self._parts or future.cancelled():
            return
        fault = future.exception()
        if fault is None:
            self._go_on()
        else:
            self._end(fault)

    def _go_on(self) -> None:
        try:
            is_all = self._send()
        except OSError as fault:
            self._end(fault)
        else:
            if is_all:
                self._end(None)

    def _end(self, fault: BaseException | None) -> None:
        self.stop()
        self._ended(fault)


def joined(pieces: Iterable[Piece]) -> list[Buffer | FileLoan]:
    """The same bytes, where those in memory that follow each other are one part; none is empty: a
    socket that takes nothing of a part has an error."""
    parts: list[Buffer | FileLoan] = []
    for is_lent, group in groupby(filter(len, pieces), lambda piece: isinstance(piece, FileLoan)):
        run: list[Any] = [*group]
        parts += run if is_lent else [b"".join(run)]
    return parts


def in_memory(piece: Piece) -> Buffer:
    """A piece, read if it was lent. Raises OSError."""
    if isinstance(piece, FileLoan):
        return piece.read()
    assert isinstance(piece, bytes | bytearray | memoryview)
    return piece
