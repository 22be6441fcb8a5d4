"""One connection above its frames: the order of answers, what may be run, and what is read.

What: whole frames come in with `take`; each is handed to `Requests` at once or queued for the
connection's turn, and the answers leave through a `Link` in the order of the requests, in one write
for all that one step produced.

Rules kept: a request that must be alone (a change of metadata, a read that went to the disk, a wait
that says so) holds up the ones behind it, as every request does in Kafka, and so does the mute of a
connection that took more than its quota; behind a request that ends the connection nothing is run;
what is queued in and out is bounded in bytes, above which no more is read. Requests are run while
the turn of the loop has time left, and queued for the connection's own turn afterwards. What a
client sent before it left is run, too, since it may want no answers. A connection that is closed
sends what is ready, and takes nothing more. Not here: whose turn it is (`turns.py`), bytes,
sockets, memory for what is not whole (`server.connection`), TLS, SASL, meaning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.broker.gate import Session
from anabranch.core.node.requests import Requests
from anabranch.core.node.slot import Slot
from anabranch.core.node.turns import NEW, SHORT, Turns
from anabranch.core.types import Piece

QUEUED_HIGH_BYTES = 16 << 20
"""Request bytes of one connection that are held before no more is read. Several of the largest
batches that clients send by default (1 MB, five in flight) fit."""

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

NOTHING: deque[Any] = deque(maxlen=0)
"""What a connection holds before it holds anything: an empty deque has 760 bytes, and of thousands
of connections most never wait for an answer."""


class Link(Protocol):
    """The same connection below its frames: the way out, and whether it is read."""

    is_busy: bool
    """What was given to it must have left before anything follows; `Channel.resumed` is called."""

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken yet, as far as is known."""

    def send(self, pieces: list[Piece], size_bytes: int) -> None:
        """Send pieces of so many bytes after all others; not while it is busy. Raises what keeps
        them from being sent: some may have left."""

    def blame(self, fault: BaseException) -> str:
        """What went wrong while sending, as a sentence; "" when the peer is gone."""

    def read(self, *, is_on: bool) -> None:
        """Read what the peer sends, or leave it in its socket."""

    def close(self, *, at_once: bool) -> None:
        """End the connection: after what was sent, or at once."""


class Lines(Protocol):
    """Where connections wait for their turn: see `server.turns.LoopTurns`."""

    turns: Turns[Any]

    def line_up(self, member: Any) -> None:
        """Have it run what it has queued when it is its turn."""


class Memory(Protocol):
    """The bytes of requests that all connections hold and that are not run yet."""

    held_bytes: int

    def release(self, size: int) -> None:
        """Some bytes are held no more."""


class Channel:
    """See the module. `hung_up` is told why the node closes a connection, and whether the reason is
    its own."""

    __slots__ = (
        "_blocked_by", "_closes_when_run", "_hung_up", "_is_held_up", "_lines", "_link", "_memory",
        "_out", "_out_bytes", "_queue", "_queued_bytes", "_reading", "_requests", "_sending",
        "_slots", "_turns", "closing", "held_bytes", "host", "identity", "is_broker",
        "is_draining", "is_in_line", "is_touched", "length", "listener", "promised_bytes",
        "received_requests", "session",
    )  # fmt: skip

    def __init__(
        self,
        requests: Requests,
        link: Link,
        lines: Lines,
        memory: Memory,
        hung_up: Callable[[str, bool], None],
        *,
        listener: str,
        host: str = "",
        session: Session | None = None,
    ) -> None:
        self._requests = requests
        self._link = link
        self._lines = lines
        self._turns = lines.turns
        self._memory = memory
        self._hung_up = hung_up
        self.listener = listener
        self.host = host
        self.identity = 0
        self.session = session or Session(ANONYMOUS)
        self.is_broker = False
        self.length = NEW
        self.is_in_line = False
        self._queue: deque[memoryview] = NOTHING
        self._queued_bytes = 0
        self._slots: deque[Slot] = NOTHING
        self._blocked_by: Slot | None = None
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._sending = True
        self._reading = True
        self._is_held_up = False
        self._closes_when_run = False
        self.closing = False
        self.held_bytes = 0
        self.promised_bytes = 0
        self.is_touched = False
        self.is_draining = False
        self.received_requests = 0

    # Frames in.

    def take(self, frame: memoryview) -> bool:
        """Run a request, or queue it; whether it was queued. Nobody else uses the frame while
        somebody holds a slice of it."""
        if self._turns.is_open and not self._queue and self._may_run:
            self._run(frame)
            return False
        if self._queue is NOTHING:
            self._queue = deque()
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        self._memory.held_bytes += len(frame)
        return True

    @property
    def has_queued(self) -> bool:
        """Whether requests are queued, for any reason."""
        return bool(self._queue)

    @property
    def has_runnable(self) -> bool:
        """Whether a request is queued that waits for nothing but its turn."""
        return bool(self._queue) and self._may_run and not self.closing

    def run_queued(self, has_time: Callable[[], bool]) -> None:
        """It is this connection's turn: run what is queued, one request at least, while there is
        time."""
        self._requests.begin()
        while self.has_runnable:
            frame = self._queue.popleft()
            self._queued_bytes -= len(frame)
            self._memory.release(len(frame))
            self._run(frame)
            del frame
            self._collect()
            if not has_time():
                break
        self.touch()
        self._requests.settle()

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
        answer = self._requests.handle(self, frame)
        if answer is None:
            return
        if isinstance(answer, list):
            if self._slots:
                self._owe(Slot.answered(self, answer))
            else:  # as `_promise` does: nearly all answers come here
                self._out += answer
                self._out_bytes += sum(map(len, answer))
                if self._out_bytes > UNSENT_HIGH_BYTES:
                    self._send()
        else:
            self._queued_bytes += answer.size_bytes
            self._owe(answer)
            if answer.hang_up or (answer.is_alone and not answer.is_done):
                self._blocked_by = answer
                self._memory.held_bytes += answer.size_bytes

    def _end_block(self) -> int:
        """Wait no more for a request that must be alone; the bytes that were held for it."""
        slot, self._blocked_by = self._blocked_by, None
        return 0 if slot is None else slot.size_bytes

    # What requests say: see `slot.Asker`.

    def touch(self) -> None:
        """Something may be ready to be sent or run: `flush` is called at the end of the step."""
        if not self.is_touched:
            self.is_touched = True
            self._requests.mailbox.ready.append(self)

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

    def hold_up(self) -> None:
        """There is no room for what it brings: take nothing more until there is."""
        self._is_held_up = True
        self._read_no_more()

    def read_on(self) -> None:
        """There is room again."""
        self._is_held_up = False
        self.length = SHORT  # else others, with shorter requests, would take the room each time
        self.touch()

    # Answers out.

    def _owe(self, slot: Slot) -> None:
        if self._slots is NOTHING:
            self._slots = deque()
        self._slots.append(slot)

    def flush(self) -> None:
        """Send what is ready, in order; what is queued behind it waits for its turn."""
        self.is_touched = False
        if self.closing:
            return
        try:
            self._flush()
        except Exception as fault:  # whatever it is, it ends no other connection of this step
            self.broken(fault)

    def _flush(self) -> None:
        if self._slots:
            self._collect()
        if self._out and not self.closing:
            self._send()
        if self._queue and self.has_runnable:
            self._lines.line_up(self)
        if self._closes_when_run and not self.has_runnable:
            self.close()
        if self._slots or self._queue or not (self._reading and self._sending):
            self._regulate()

    def _collect(self) -> None:
        slots = self._slots
        while slots and slots[0].is_done:
            slot = slots.popleft()
            self._queued_bytes -= slot.size_bytes
            self.held_bytes -= slot.held_bytes
            if slot is self._blocked_by:
                self._memory.release(self._end_block())
            if slot.buffers:
                self._promise(slot.buffers)
            if slot.hang_up:
                self.hang_up(slot.hang_up, is_own_fault=slot.is_own_fault)
                return

    def _promise(self, pieces: list[Piece]) -> None:
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > UNSENT_HIGH_BYTES:
            self._send()  # the link says `paused` when its peer is slow

    def _send(self) -> None:
        if self._link.is_busy:
            return  # what is ready follows what is on its way
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._requests.sent_bytes += size
        try:
            self._link.send(out, size)
        except Exception as fault:  # as in `flush`
            self.broken(fault)
        else:
            self._sending = self._sending and not self._link.is_busy

    # What the link says.

    def paused(self) -> None:
        """The peer does not take its answers: run no more of its requests."""
        self._sending = False
        self._regulate()

    def resumed(self) -> None:
        """The peer took its answers, or what kept the link busy has left."""
        if self.closing:
            self._close()
        else:
            self._sending = not self._link.is_busy
            self.touch()

    def broken(self, fault: BaseException) -> None:
        """Part of an answer may have left, and its length was promised."""
        why = self._link.blame(fault)
        if why:
            self._hung_up(f"an answer could not be sent to its end: {why}", True)
        self.drop()

    def ended(self) -> bool:
        """The peer will send no more: whether the connection is closed later, by `flush`, after
        what can be run now. Kafka, too, runs what came before the end; what waits for other
        requests, or for a mute to end, may be a minute away."""
        if not self.has_runnable:
            return False
        self._reading = False
        self.is_draining = self._closes_when_run = True
        return True

    def lost(self) -> None:
        """The connection is gone: nobody waits for what is parked."""
        self.closing = True
        if self.session.refusal:
            self._hung_up(f"a login is refused: {self.session.refusal}", False)
        for slot in self._slots:
            self._requests.abandon(slot)
        self._slots.clear()
        self._requests.left(self)
        self._memory.release(sum(map(len, self._queue)) + self._end_block())
        self._queue.clear()
        self._out.clear()

    # Reading.

    def _regulate(self) -> None:
        if self.closing or self.is_draining:
            return
        if self._reading:
            if (
                not self._sending
                or self._queued_bytes > QUEUED_HIGH_BYTES
                or len(self._slots) + len(self._queue) > UNANSWERED_REQUESTS
            ):
                self._read_no_more()
        elif (
            self._sending
            and not self._is_held_up
            and self._queued_bytes <= QUEUED_LOW_BYTES
            and len(self._slots) + len(self._queue) <= UNANSWERED_REQUESTS // 2
        ):
            self._reading = True
            self._link.read(is_on=True)

    def _read_no_more(self) -> None:
        if self._reading and not self.closing:
            self._reading = False
            self._link.read(is_on=False)

    def stop_reading(self) -> None:
        """Take no further request; what was read is still answered."""
        self._read_no_more()
        self._reading = False
        self.is_draining = True

    # The end.

    @property
    def is_waited_for(self) -> bool:
        """Whether an answer is owed: it is not idle. One that only rests, for weeks perhaps, is."""
        return bool(self._slots) and self._slots[0].route is not None

    @property
    def is_idle(self) -> bool:
        """Nothing is owed, queued or half sent."""
        return not (self._slots or self._queue or self._out) and not self._link.unsent_bytes

    def hang_up(self, why: str, *, is_own_fault: bool = False) -> None:
        """Say why in the log, send what was promised, and close."""
        if self.closing:
            return
        self._hung_up(why, is_own_fault)
        self.close()

    def close(self) -> None:
        """Send what is ready and close."""
        if not self.closing:
            self.closing = True
            self._close()

    def _close(self) -> None:
        if self._out:
            self._send()
        if not self._link.is_busy:
            self._link.close(at_once=False)
        elif self._reading:
            self._reading = False
            self._link.read(is_on=False)

    def drop(self) -> None:
        """Close at once; what the peer has not taken is lost."""
        self.closing = True
        self._out.clear()
        self._link.close(at_once=True)
