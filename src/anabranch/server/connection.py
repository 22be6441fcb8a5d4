"""Bytes to requests and back: one connection of a client.

What: a `BufferedProtocol` that cuts frames out of what arrives, hands them to the dispatcher in
order, and sends the answers in the same order, one write for all that one step produced.

    frame := size int32, then `size` bytes: request header, request body

Why two ways to receive: many small frames arrive in one read of the loop's shared buffer, and each
is copied out (a copy of kilobytes costs less than anything else that happens to it); a frame above
`LARGE_FRAME_BYTES` is received straight into memory of its own. Either way a frame is a writable
memoryview that nobody else uses while somebody holds a slice of it.

Rules kept: answers leave in the order of requests; a request that must be alone (a change of
metadata, a read that went to the disk, a wait that says so) holds up the ones behind it, as every
request does in Kafka, and so does the mute of a connection that took more than its quota;
what is queued in and out is bounded in bytes, above which the socket is not read. What all
connections hold of requests that are not run yet is bounded, too, where `queued.max.request.bytes`
is set: a large frame then waits in its client's socket for its turn. Requests are run while the
turn of the loop has time left, and queued for the connection's own turn afterwards. What a client
sent before it left is run, too, since it may want no answers. Not here: whose turn it is
(`core.node.turns`), TLS, SASL, meaning.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from struct import Struct
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.broker.gate import Session
from anabranch.core.node.turns import NEW, SHORT, SHORT_NS, learn
from anabranch.core.types import SIZE_BYTES, Piece
from anabranch.server.link import Link, is_of_peer
from anabranch.server.other_protocols import SMALLEST_GREETING, other_protocol
from anabranch.server.own_faults import described
from anabranch.server.receive_memory import ReceiveMemory

if TYPE_CHECKING:
    from anabranch.server.dispatch import Dispatcher, Slot
    from anabranch.server.turns import LoopTurns

SIZE = Struct(">i").unpack_from

LARGE_FRAME_BYTES = 64 << 10

QUEUED_HIGH_BYTES = 16 << 20
"""Request bytes of one connection that are held before its socket is left alone. Several of the
largest batches that clients send by default (1 MB, five in flight) fit."""

QUEUED_LOW_BYTES = 4 << 20
UNSENT_HIGH_BYTES = 4 << 20
"""Answers of one connection that its peer has not taken before no more of its requests are run."""

UNSENT_LOW_BYTES = 1 << 20
PROMISED_HIGH_BYTES = 64 << 20
"""What the answers that one connection waits for may bring before no more of its requests are run:
a fetch as large as clients ask by default (50 MB) does not hold up what comes behind it, a second
one does. Without this, thousands of parked fetches could be answered at once."""

UNANSWERED_REQUESTS = 2048
"""Parked and queued requests of one connection; no known client keeps a hundredth in flight."""

READ_IN_LINE_BYTES = 16 << 10
"""What is read at once where what comes is queued: to cut frames takes time, too, and the other
connections wait meanwhile."""

NOTHING: deque[Any] = deque(maxlen=0)
"""What a connection holds before it holds anything: an empty deque has 760 bytes, and of thousands
of connections most never wait for an answer."""


class Admission(Protocol):
    """Who lets connections in, and counts them: see `listener.Acceptor`."""

    name: str
    largest_request_bytes: int

    def admit(self, connection: Connection) -> str:
        """Count a new connection in; a sentence when there is no room for it."""

    def leave(self, connection: Connection) -> None:
        """Count a connection out."""

    def hung_up(self, connection: Connection, why: str, *, is_own_fault: bool) -> None:
        """The node closes a connection, and says why; whether the reason is its own."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection on one listener."""

    __slots__ = (
        "_admission", "_blocked_by", "_closes_when_run", "_dispatcher", "_filled", "_frame",
        "_is_held_up", "_link", "_memory", "_out", "_out_bytes", "_queue", "_queued_bytes",
        "_reading", "_seen_sent_bytes", "_sending", "_slots", "_tail", "_transport", "_turns",
        "_waits_for_memory", "closing", "held_bytes", "host", "identity", "is_broker",
        "is_draining", "is_in_line", "is_touched", "last_active_ms", "length", "listener",
        "promised_bytes", "received_requests", "session",
    )  # fmt: skip

    def __init__(
        self,
        admission: Admission,
        dispatcher: Dispatcher,
        memory: ReceiveMemory,
        turns: LoopTurns,
    ) -> None:
        self._admission = admission
        self._dispatcher = dispatcher
        self._memory = memory
        self._turns = turns
        self.is_broker = False
        self.length = NEW
        self.is_in_line = False
        self._transport: Any = None
        self._tail = b""
        self._frame: memoryview | None = None
        self._filled = 0
        self._queue: deque[memoryview] = NOTHING
        self._queued_bytes = 0
        self._slots: deque[Slot] = NOTHING
        self._blocked_by: Slot | None = None
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._link: Link
        self._seen_sent_bytes = 0
        self._sending = True
        self._reading = True
        self._waits_for_memory = False
        self._is_held_up = False
        self._closes_when_run = False
        self.closing = False
        self.held_bytes = 0
        self.promised_bytes = 0
        self.is_touched = False
        self.is_draining = False
        self.listener = admission.name
        self.session = Session(ANONYMOUS)
        self.host = ""
        self.identity = 0
        self.last_active_ms = 0
        self.received_requests = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or refuse it when there are too many."""
        self._transport = transport
        self._link = Link(transport, self._lent_sent)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        refusal = self._admission.admit(self)
        if refusal:
            self.closing = True
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES, low=UNSENT_LOW_BYTES)

    def connection_lost(self, _fault: Exception | None) -> None:
        """The peer is gone: nobody waits for what is parked."""
        self.closing = True
        for slot in self._slots:
            self._dispatcher.abandon(slot)
        self._slots.clear()
        self._dispatcher.left(self)
        held = [*self._queue, *(() if self._frame is None else (self._frame,))]
        self._memory.arrived_bytes -= 0 if self._frame is None else self._filled
        self._memory.release(sum(map(len, held)) + self._end_block(), leaving=self)
        self._memory.read_on(leaving=self)
        self._queue.clear()
        self._frame = None
        self._out.clear()
        self._link.stop()
        self._admission.leave(self)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Where the next bytes go: the rest of a large frame, or the shared buffer."""
        frame = self._frame
        if frame is not None:
            return frame[self._filled :]
        tail = self._tail
        view = self._memory.view
        if self._queue or not self._turns.turns.is_open:
            view = view[: len(tail) + READ_IN_LINE_BYTES]
        if tail:
            view[: len(tail)] = tail
            return view[len(tail) :]
        return view

    def buffer_updated(self, size: int) -> None:
        """Bytes came: run every whole frame among them, then send what they were answered."""
        dispatcher, turns = self._dispatcher, self._turns.turns
        begun_ns = monotonic_ns()
        turns.begun(begun_ns)
        dispatcher.begin()
        self.last_active_ms = dispatcher.steady_ms
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
        self.touch()
        dispatcher.settle()
        if turns.is_open:
            now_ns = monotonic_ns()
            took_ns = now_ns - begun_ns
            if took_ns > SHORT_NS or self.length != SHORT:
                learn(self, took_ns)
            if turns.is_over(now_ns):
                self._turns.go_on()

    def eof_received(self) -> bool:
        """The peer will send no more: the loop closes the connection, or we do, after what can be
        run now and what is on its way past the transport. Kafka, too, runs what came before the
        end; what waits for other requests, or for a mute to end, may be a minute away."""
        if self.has_runnable:
            self._reading = False
            self.is_draining = self._closes_when_run = True
            return True
        if not self._link.is_busy:
            return False
        self.close()
        return True

    def pause_writing(self) -> None:
        """The peer does not take its answers: run no more of its requests."""
        self._sending = False
        self._regulate()

    def resume_writing(self) -> None:
        """The peer took its answers."""
        self._sending = True
        self._dispatcher.begin()
        self.last_active_ms = self._dispatcher.steady_ms
        self.touch()
        self._dispatcher.settle()

    def memory_freed(self) -> None:
        """Go on with what came before there was no memory for it."""
        self._waits_for_memory = False
        if not self.closing and not self.is_draining:
            self.get_buffer(-1)
            self.buffer_updated(0)

    def brought(self, *, is_crowded: bool) -> None:
        """Its last request brought what waits for a store."""
        self._memory.brought(self, is_crowded=is_crowded)

    def hold_up(self) -> None:
        """There is no room for what it brings: take nothing more until there is."""
        self._is_held_up = True
        if self._reading and not self.closing:
            self._reading = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        """There is room again."""
        self._is_held_up = False
        self.length = SHORT  # else others, with shorter requests, would take the room each time
        self._dispatcher.begin()
        self.touch()
        self._dispatcher.settle()

    # Frames in.

    def _cut_frames(self, end: int) -> None:
        view = self._memory.view
        buffer = self._memory.buffer
        turns = self._turns.turns
        position = 0
        while end - position >= SIZE_BYTES:
            if position and turns.is_open and turns.is_over(monotonic_ns()):
                self._turns.go_on()
            size = SIZE(buffer, position)[0]
            if not 0 < size <= self._admission.largest_request_bytes:
                self._refuse_size(size, bytes(view[position : min(end, position + 8)]))
                return
            start = position + SIZE_BYTES
            stop = start + size
            if stop > end:
                if size > LARGE_FRAME_BYTES and self._start_large_frame(size, view[start:end]):
                    position = end
                break
            self._take(memoryview(bytearray(view[start:stop])))
            if self.closing:
                return
            position = stop
        self._tail = bytes(view[position:end]) if position < end else b""

    def _start_large_frame(self, size: int, received: memoryview) -> bool:
        """Go on in memory of the frame's own; False: there is none now."""
        if size >= SMALLEST_GREETING and not self.received_requests:
            why = other_protocol(size.to_bytes(SIZE_BYTES, "big") + bytes(received[:4]))
            if why:
                self.hang_up(why)
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

    def _wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self._memory.wait(self)
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _refuse_size(self, size: int, first: bytes) -> None:
        limit = self._admission.largest_request_bytes
        why = other_protocol(first)
        if not why and size <= 0:
            why = f"a frame says that its size is {size}"
        elif not why:
            why = f"a frame of {size} bytes is above socket.request.max.bytes={limit}"
        self.hang_up(why)

    def _take(self, frame: memoryview) -> None:
        if self._turns.turns.is_open and self._may_run and not self._queue:
            self._run(frame)
        else:
            if self._queue is NOTHING:
                self._queue = deque()
            self._queue.append(frame)
            self._queued_bytes += len(frame)
            self._memory.held_bytes += len(frame)
            if self._memory.is_full and not self._waits_for_memory:
                self._wait_for_memory()

    @property
    def has_runnable(self) -> bool:
        """Whether a request is queued that waits for nothing but its turn."""
        return bool(self._queue) and self._may_run and not self.closing

    def run_queued(self, until_ns: int) -> None:
        """It is this connection's turn: run what is queued, one request at least, until a time."""
        self._dispatcher.begin()
        while self.has_runnable:
            frame = self._queue.popleft()
            self._queued_bytes -= len(frame)
            self._memory.release(len(frame))
            self._run(frame)
            del frame
            self._collect()
            if monotonic_ns() >= until_ns:
                break
        self.touch()
        self._dispatcher.settle()

    @property
    def _may_run(self) -> bool:
        """Whether a request may be run, or stays queued: its answer too must be held."""
        return (
            self._blocked_by is None
            and not self._is_held_up
            and self._sending
            and self.held_bytes <= UNSENT_HIGH_BYTES
            and self.promised_bytes <= PROMISED_HIGH_BYTES
        )

    def _run(self, frame: memoryview) -> None:
        self.received_requests += 1
        answer = self._dispatcher.handle(self, frame)
        if answer is None:
            return
        if isinstance(answer, list):
            if self._slots:
                self._owe(self._dispatcher.answered_slot(self, answer))
            else:
                self._promise(answer)
        else:
            self._queued_bytes += answer.size_bytes
            self._owe(answer)
            if answer.is_alone and not answer.is_done:
                self._blocked_by = answer
                self._memory.held_bytes += answer.size_bytes

    def _end_block(self) -> int:
        """Wait no more for a request that must be alone; the bytes that were held for it."""
        slot, self._blocked_by = self._blocked_by, None
        return 0 if slot is None else slot.size_bytes

    # Answers out.

    def _owe(self, slot: Slot) -> None:
        if self._slots is NOTHING:
            self._slots = deque()
        self._slots.append(slot)

    def touch(self) -> None:
        """Something may be ready to be sent or run: `flush` is called at the end of the step."""
        if not self.is_touched:
            self.is_touched = True
            self._dispatcher.mailbox.ready.append(self)

    def send_now(self) -> None:
        """Send what is ready within the step, not at its end: other clients wait for what the peer
        does with it. What is queued is run at the end, since the step is in the midst of others."""
        if self._queue or self.is_touched:
            self.touch()
        else:
            self.flush()

    def put_back(self, frame: memoryview) -> None:
        """Queue a request before all others; whoever puts it back says what it waits for."""
        if self._queue is NOTHING:
            self._queue = deque()
        self.received_requests -= 1
        self._queue.appendleft(frame)
        self._queued_bytes += len(frame)
        self._memory.held_bytes += len(frame)

    def flush(self) -> None:
        """Send what is ready, in order; what is queued behind it waits for its turn."""
        self.is_touched = False
        if self.closing:
            return
        self._collect()
        if self._out and not self.closing:
            self._send()
        if self.has_runnable:
            self._turns.line_up(self)
        if self._closes_when_run and not self.has_runnable:
            self.close()
        self._regulate()

    def _collect(self) -> None:
        slots = self._slots
        while slots and slots[0].is_done:
            slot = slots.popleft()
            self._queued_bytes -= slot.size_bytes
            self.held_bytes -= slot.held_bytes
            if slot is self._blocked_by:
                self._memory.release(self._end_block())
            if slot.hang_up:
                self.hang_up(slot.hang_up, is_own_fault=slot.is_own_fault)
                return
            if slot.buffers:
                self._promise(slot.buffers)

    def _promise(self, pieces: list[Piece]) -> None:
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > UNSENT_HIGH_BYTES:
            self._send()  # the transport says pause_writing when its peer is slow

    def _send(self) -> None:
        if self._link.is_busy:
            return  # what is ready follows what is on its way
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._dispatcher.sent_bytes += size
        try:
            self._link.send(out, size)
        except Exception as fault:  # whatever it is, it ends no other connection of this step
            self._cannot_send(fault)
        else:
            self._sending = self._sending and not self._link.is_busy

    def _lent_sent(self, fault: BaseException | None) -> None:
        if fault is not None:
            self._cannot_send(fault)
        elif self.closing:
            self._close_transport()
        else:
            self.resume_writing()

    def _cannot_send(self, fault: BaseException) -> None:
        """Part of an answer may have left, and its length was promised."""
        if not is_of_peer(fault):
            why = f"an answer could not be sent to its end: {described(fault)}"
            self._admission.hung_up(self, why, is_own_fault=True)
        self.drop()

    def _regulate(self) -> None:
        if self.closing or self.is_draining:
            return
        if self._reading:
            if (
                not self._sending
                or self._queued_bytes > QUEUED_HIGH_BYTES
                or len(self._slots) + len(self._queue) > UNANSWERED_REQUESTS
            ):
                self._reading = False
                self._transport.pause_reading()
        elif (
            self._sending
            and not self._waits_for_memory
            and not self._is_held_up
            and self._queued_bytes <= QUEUED_LOW_BYTES
            and len(self._slots) + len(self._queue) <= UNANSWERED_REQUESTS // 2
        ):
            self._reading = True
            self._transport.resume_reading()

    # The end.

    def stop_reading(self) -> None:
        """Take no further request; what was read is still answered."""
        if self._reading and not self.closing:
            self._transport.pause_reading()
        self._reading = False
        self.is_draining = True

    @property
    def is_waited_for(self) -> bool:
        """Whether an answer is owed, or more has come than there is memory for: it is not idle."""
        return bool(self._slots) or self._waits_for_memory

    @property
    def is_idle(self) -> bool:
        """Nothing is owed, queued or half sent."""
        return not (self._slots or self._queue or self._out) and not self.unsent_bytes

    @property
    def unsent_bytes(self) -> int:
        """Answers that the peer has not taken yet."""
        return self._link.unsent_bytes

    def look(self, now_ms: int) -> None:
        """Whether its peer has taken bytes since the last look: then it is as active as one that
        sends them."""
        sent_bytes = self._link.sent_bytes
        if sent_bytes != self._seen_sent_bytes:
            self._seen_sent_bytes, self.last_active_ms = sent_bytes, now_ms

    def hang_up(self, why: str, *, is_own_fault: bool = False) -> None:
        """Say why in the log, send what was promised, and close."""
        if self.closing:
            return
        self._admission.hung_up(self, why, is_own_fault=is_own_fault)
        self.close()

    def close(self) -> None:
        """Send what is ready and close."""
        if self.closing:
            return
        self.closing = True
        self._close_transport()

    def _close_transport(self) -> None:
        if self._out:
            self._send()
        if not self._link.is_busy:
            self._transport.close()
        elif self._reading:
            self._reading = False
            self._transport.pause_reading()

    def drop(self) -> None:
        """Close at once; what the peer has not taken is lost."""
        self.closing = True
        self._transport.abort()
