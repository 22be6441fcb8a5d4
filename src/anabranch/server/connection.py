"""Bytes to frames: what receives for one connection of a client.

What: a `BufferedProtocol` that cuts frames out of what arrives and gives them to the connection's
`Channel`, which decides everything from there on; its answers leave through the `Link`.

    frame := size int32, then `size` bytes: request header, request body

Why two ways to receive: many small frames arrive in one read of the loop's shared buffer, and each
is copied out (a copy of kilobytes costs less than anything else that happens to it); a frame above
`LARGE_FRAME_BYTES` is received straight into memory of its own. Either way a frame is a writable
memoryview that nobody else uses while somebody holds a slice of it.

Rules kept: each event of the loop is one step of the role (`core.step`). What all connections hold
of requests that are not run yet is bounded where `queued.max.request.bytes` is set: a large frame
then waits in its client's socket for its turn. Not here: order, budgets, mutes, what is run, and
when no more is read (`core.node.channel`); whose turn it is (`core.node.turns`).
"""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.broker.gate import Session
from anabranch.core.node.channel import UNSENT_HIGH_BYTES, UNSENT_LOW_BYTES, Channel
from anabranch.core.node.turns import SHORT, SHORT_NS, learn
from anabranch.core.types import SIZE_BYTES
from anabranch.server.link import Link
from anabranch.server.other_protocols import SMALLEST_GREETING, other_protocol
from anabranch.server.receive_memory import ReceiveMemory

if TYPE_CHECKING:
    from anabranch.core.node.requests import Requests
    from anabranch.server.request_shell import RequestShell
    from anabranch.server.turns import LoopTurns

SIZE = Struct(">i").unpack_from

LARGE_FRAME_BYTES = 64 << 10
HELD = "held"
"""What `admit` says of a connection that is not let in, and closed later."""

READ_IN_LINE_BYTES = 16 << 10
"""What is read at once where what comes is queued: to cut frames takes time, too, and the other
connections wait meanwhile."""


class Admission(Protocol):
    """Who lets connections in, and counts them: see `listener.Acceptor`."""

    name: str
    largest_request_bytes: int
    largest_unknown_bytes: int
    """Of a client that has not shown who it is."""

    def session(self, tls: Any) -> Session | str:
        """Whose a connection is, after its handshake if it has one; a sentence if it may not
        stay."""

    def admit(self, connection: Connection) -> str:
        """Count a new connection in; a sentence when there is no room for it, `HELD` when it is
        closed later."""

    def leave(self, connection: Connection) -> None:
        """Count a connection out."""

    def hung_up(self, connection: Connection, why: str, *, is_own_fault: bool) -> None:
        """The node closes a connection, and says why; whether the reason is its own."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection on one listener."""

    __slots__ = (
        "_admission", "_filled", "_frame", "_lines", "_memory", "_requests", "_seen_sent_bytes",
        "_serving", "_tail", "_transport", "_turns", "_waits_for_memory", "channel", "host",
        "last_active_ms", "link",
    )  # fmt: skip

    channel: Channel
    link: Link

    def __init__(
        self, admission: Admission, serving: RequestShell, memory: ReceiveMemory, lines: LoopTurns
    ) -> None:
        self._admission = admission
        self._serving = serving
        self._requests: Requests = serving.requests
        self._memory = memory
        self._lines = lines
        self._turns = lines.turns
        self._transport: Any = None
        self._tail = b""
        self._frame: memoryview | None = None
        self._filled = 0
        self._seen_sent_bytes = 0
        self._waits_for_memory = False
        self.host = ""
        self.last_active_ms = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or refuse it when there are too many."""
        self._transport = transport
        self.link = Link(transport, self.resume_writing, self._broken)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self.channel = Channel(
            self._requests, self.link, self._lines, self._memory, self._hung_up,
            listener=self._admission.name, host=self.host,
            session=Session(ANONYMOUS, is_restricted=True),  # until `secured` knows better
        )  # fmt: skip
        refusal = self._admission.admit(self)
        if refusal:
            if refusal is HELD:
                self._transport.pause_reading()
            else:
                self.channel.drop()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES, low=UNSENT_LOW_BYTES)
        if transport.get_extra_info("ssl_object") is None:
            self.secured(None)

    def secured(self, tls: Any) -> str:
        """There is no handshake, or it is over: whose the connection is; a sentence if it may not
        stay."""
        session = self._admission.session(tls)
        if isinstance(session, str):
            return session
        self.channel.session = session
        return ""

    def connection_lost(self, _fault: Exception | None) -> None:
        """The peer is gone."""
        self.channel.lost()
        self._serving.left(self.channel)
        frame, self._frame = self._frame, None
        if frame is not None:
            self._memory.arrived_bytes -= self._filled
        self._memory.release(0 if frame is None else len(frame), leaving=self)
        self.link.stop()
        self._admission.leave(self)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Where the next bytes go: the rest of a large frame, or the shared buffer."""
        frame = self._frame
        if frame is not None:
            return frame[self._filled :]
        tail = self._tail
        view = self._memory.view
        if not self._turns.is_open or self.channel.has_queued:
            view = view[: len(tail) + READ_IN_LINE_BYTES]
        if tail:
            view[: len(tail)] = tail
            return view[len(tail) :]
        return view

    def buffer_updated(self, size: int) -> None:
        """Bytes came: run every whole frame among them, then send what they were answered."""
        serving, turns, channel = self._serving, self._turns, self.channel
        begun_ns = monotonic_ns()
        turns.begun(begun_ns)
        serving.begin()
        self.last_active_ms = self._requests.steady_ms
        frame = self._frame
        if frame is None:
            self._cut_frames(len(self._tail) + size)
        else:
            self._filled += size
            self._memory.arrived_bytes += size
            if self._filled < len(frame):
                return
            self._frame = None
            self._memory.arrived_bytes -= self._filled
            self._memory.release(len(frame))
            self._take(frame)
        channel.touch()
        serving.settle()
        if turns.is_open:
            now_ns = monotonic_ns()
            took_ns = now_ns - begun_ns
            if took_ns > SHORT_NS or channel.length != SHORT:
                learn(channel, took_ns)
            if turns.is_over(now_ns):
                self._lines.go_on()

    def eof_received(self) -> bool:
        """The peer will send no more: the loop closes the connection, or the channel does, after
        what can be run now and what is on its way past the transport."""
        if self.channel.ended():
            return True
        if not self.link.is_busy:
            return False
        self.channel.close()
        return True

    def pause_writing(self) -> None:
        """The peer does not take its answers."""
        self.channel.paused()

    def resume_writing(self) -> None:
        """The peer took its answers."""
        self._serving.begin()
        self.last_active_ms = self._requests.steady_ms
        self.channel.resumed()
        self._serving.settle()

    def _broken(self, fault: BaseException) -> None:
        self.channel.broken(fault)

    def _hung_up(self, why: str, is_own_fault: bool) -> None:
        self._admission.hung_up(self, why, is_own_fault=is_own_fault)

    # Frames in.

    def _cut_frames(self, end: int) -> None:
        view = self._memory.view
        buffer = self._memory.buffer
        turns, channel = self._turns, self.channel
        position = 0
        while end - position >= SIZE_BYTES:
            if position and turns.is_open and turns.is_over(monotonic_ns()):
                self._lines.go_on()
            size = SIZE(buffer, position)[0]
            if not 0 < size <= self._admission.largest_request_bytes or (
                size > self._admission.largest_unknown_bytes and not channel.session.is_begun
            ):
                self._refuse_size(size, bytes(view[position : min(end, position + 8)]))
                return
            start = position + SIZE_BYTES
            stop = start + size
            if stop > end:
                if size > LARGE_FRAME_BYTES and self._start_large_frame(size, view[start:end]):
                    position = end
                break
            frame = memoryview(bytearray(view[start:stop]))
            if channel.take(frame) and self._memory.is_full:
                self._wait_for_memory()
            if channel.closing:
                return
            position = stop
        self._tail = bytes(view[position:end]) if position < end else b""

    def _take(self, frame: memoryview) -> None:
        if self.channel.take(frame) and self._memory.is_full:
            self._wait_for_memory()

    def _start_large_frame(self, size: int, received: memoryview) -> bool:
        """Go on in memory of the frame's own; False: there is none now."""
        if size >= SMALLEST_GREETING and not self.channel.received_requests:
            why = other_protocol(size.to_bytes(SIZE_BYTES, "big") + bytes(received[:4]))
            if why:
                self.channel.hang_up(why)
                return True
        memory = self._memory
        if memory.is_full:
            self._wait_for_memory()
            return False
        memory.held_bytes += size
        frame = memory.pool.take(size)
        self._filled = len(received)
        frame[: self._filled] = received
        memory.arrived_bytes += self._filled
        self._frame = frame
        return True

    def _refuse_size(self, size: int, first: bytes) -> None:
        limit, name = self._admission.largest_request_bytes, "socket.request.max.bytes"
        if not self.channel.session.is_begun:
            limit, name = self._admission.largest_unknown_bytes, "sasl.server.max.receive.size"
        why = other_protocol(first)
        if not why and size <= 0:
            why = f"a frame says that its size is {size}"
        elif not why:
            why = f"a frame of {size} bytes is above {name}={limit}"
        self.channel.hang_up(why)

    def _wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self._memory.wait(self)
        self.link.bar(is_on=True)

    def memory_freed(self) -> None:
        """Go on with what came before there was no memory for it."""
        self._waits_for_memory = False
        if not self.channel.closing and not self.channel.is_draining:
            self.get_buffer(-1)
            self.buffer_updated(0)
            if not self._waits_for_memory:
                self.link.bar(is_on=False)

    # What the listener asks.

    @property
    def is_waited_for(self) -> bool:
        """Whether an answer is owed, or more has come than there is memory for: it is not idle."""
        return self.channel.is_waited_for or self._waits_for_memory

    def look(self, now_ms: int) -> None:
        """Whether its peer has taken bytes since the last look: then it is as active as one that
        sends them."""
        sent_bytes = self.link.sent_bytes
        if sent_bytes != self._seen_sent_bytes:
            self._seen_sent_bytes, self.last_active_ms = sent_bytes, now_ms
