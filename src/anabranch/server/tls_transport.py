"""TLS between a socket and its `Connection`, or HTTP: it is the transport of what is above it, and
the socket's protocol.

What: bytes that come are decrypted into the connection's buffers, what it writes is encrypted. Why
not the loop's own TLS: a connection is counted and bounded before its handshake, the handshake's
computation runs in threads (a signature takes up to a millisecond, and a storm of clients would
hold up all others), and a failure is told with its cause.

    handshake --finished--> open --either side ends it--> closed
              --failed, too long, too large--> closed

Rules kept: nothing is read above before the handshake has finished; one that takes longer than
`HANDSHAKE_SECONDS` or more than `MOST_HANDSHAKE_BYTES` fails; what is written leaves encrypted, so
that nothing is lent (`Link.lends`). Not here: who the peer is (`listener_security.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any, Protocol

from anabranch.client.handshake_faults import why_client_fails
from anabranch.core.types import Piece

HANDSHAKE_SECONDS = 10.0
MOST_HANDSHAKE_BYTES = 256 << 10
"""More than certificate chains have: the library itself takes 100 KB of them."""
READ_BYTES = 256 << 10
ENCRYPTED_AT_ONCE = 1 << 20
HANDSHAKE_THREADS = 2


class _State(Enum):
    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSED = "closed"


class Guard(Protocol):
    """Whose listener it is."""

    def context(self) -> ssl.SSLContext:
        """Keys and trust as they are now."""

    def handshake_failed(self, host: str, why: str) -> None:
        """A client is not let in."""


class Above(Protocol):
    """What is above: a `Connection`, or HTTP. It is called as the loop calls a protocol."""

    host: str

    def connection_made(self, transport: Any, /) -> None:
        """The socket is connected."""

    def secured(self, tls: ssl.SSLObject, /) -> str:
        """The handshake is over; a sentence if the client may not stay."""

    def get_buffer(self, size_hint: int, /) -> memoryview:
        """Where the next bytes go."""

    def buffer_updated(self, size: int, /) -> None:
        """Bytes came."""

    def eof_received(self) -> bool:
        """The peer sends no more: whether the connection stays."""

    def pause_writing(self) -> None:
        """The peer does not take what is sent."""

    def resume_writing(self) -> None:
        """It does again."""

    def connection_lost(self, fault: Exception | None, /) -> None:
        """The socket is gone."""


class Handshakes:
    """The threads in which handshakes are computed: those of one loop."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self.view = memoryview(bytearray(READ_BYTES))
        """Where all connections receive, one after the other."""

    def step(self, tls: ssl.SSLObject) -> Future[None]:
        """Go on with one."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls")
        return self._threads.submit(tls.do_handshake)

    def stop(self) -> None:
        """No more are begun."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class TlsTransport(asyncio.BufferedProtocol):
    """One connection; see the module."""

    __slots__ = (
        "_above", "_deadline", "_guard", "_handshakes", "_has_ended", "_incoming", "_is_shaking",
        "_is_wanted", "_loop", "_outgoing", "_raw", "_received_bytes", "_state", "_tls",
    )  # fmt: skip

    def __init__(self, guard: Guard, handshakes: Handshakes, above: Above) -> None:
        self._guard = guard
        self._handshakes = handshakes
        self._above = above
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = guard.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._state = _State.HANDSHAKE
        self._raw: Any = None
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._received_bytes = 0
        self._has_ended = False
        """The peer has said that it sends no more: what comes all the same is left."""
        self._is_shaking = False
        self._is_wanted = True

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: the connection counts from now on."""
        self._raw = transport
        self._deadline = self._loop.call_later(HANDSHAKE_SECONDS, self._is_late)
        self._above.connection_made(self)

    def connection_lost(self, fault: Exception | None) -> None:
        """The socket is gone."""
        if self._state is _State.HANDSHAKE and self._received_bytes:
            self._failed("the client ended the connection during the TLS handshake")
        self._close_state()
        self._above.connection_lost(fault)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Where the next encrypted bytes go."""
        return self._handshakes.view

    def buffer_updated(self, size: int) -> None:
        """Encrypted bytes came."""
        if self._state is _State.CLOSED or self._has_ended:
            return
        self._incoming.write(self._handshakes.view[:size])
        if self._state is _State.OPEN:
            self._decrypt()
            return
        self._received_bytes += size
        if self._received_bytes > MOST_HANDSHAKE_BYTES:
            self._fail(f"a TLS handshake of more than {MOST_HANDSHAKE_BYTES} bytes")
        elif not self._is_shaking:
            self._shake()

    def eof_received(self) -> bool:
        """The peer sends no more."""
        return self._state is _State.OPEN and self._above.eof_received()

    def pause_writing(self) -> None:
        """The peer does not take what is sent."""
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._above.resume_writing()

    # The handshake.

    def _shake(self) -> None:
        """Compute the next step in a thread, and read nothing meanwhile."""
        self._is_shaking = True
        self._raw.pause_reading()
        try:
            step = asyncio.wrap_future(self._handshakes.step(self._tls), loop=self._loop)
        except RuntimeError:  # the node stops
            self.abort()
            return
        step.add_done_callback(self._shaken)

    def _shaken(self, step: asyncio.Future[None]) -> None:
        self._is_shaking = False
        fault = None if step.cancelled() else step.exception()
        if self._state is _State.CLOSED or step.cancelled():
            return
        self._flush()
        if fault is None:
            self._open()
        elif isinstance(fault, ssl.SSLWantReadError):
            self._raw.resume_reading()
        else:
            why = why_client_fails(fault) if isinstance(fault, ssl.SSLError) else str(fault)
            self._fail(why)

    def _open(self) -> None:
        self._state = _State.OPEN
        assert self._deadline is not None
        self._deadline.cancel()
        try:
            why = self._above.secured(self._tls)
        except Exception:  # such a client does not stay
            self.abort()
            raise
        if why:
            self._failed(why)
            self.abort()
            return
        if self._is_wanted:
            self._raw.resume_reading()
            self._decrypt()

    def _is_late(self) -> None:
        if self._state is not _State.HANDSHAKE:
            return
        if self._received_bytes:  # else it said nothing: other nodes look so whether one is there
            self._failed(f"the TLS handshake was not over within {HANDSHAKE_SECONDS:g} s")
        self.abort()

    def _fail(self, why: str) -> None:
        self._failed(why)
        self._close_state()
        self._flush()
        self._raw.close()

    def _failed(self, why: str) -> None:
        self._guard.handshake_failed(self._above.host, why)

    def _close_state(self) -> None:
        self._state = _State.CLOSED
        if self._deadline is not None:
            self._deadline.cancel()

    # In.

    def _decrypt(self) -> None:
        """Hand on what came, as much as is wanted."""
        above = self._above
        try:
            while self._is_wanted and self._state is _State.OPEN:
                view = above.get_buffer(-1)
                size, is_more = self._fill(view)
                if size:
                    above.buffer_updated(size)
                if not is_more:
                    break
            self._flush()
        except ssl.SSLError as fault:
            if fault.reason is not None and self._state is _State.OPEN:
                self._failed(f"what the client sent cannot be decrypted ({fault.reason})")
            self.abort()

    def _fill(self, view: memoryview) -> tuple[int, bool]:
        """How much was put into a buffer, and whether there may be more."""
        filled, room, read = 0, len(view), self._tls.read
        while filled < room:
            try:
                size: Any = read(room - filled, view[filled:])
            except ssl.SSLWantReadError:
                return filled, False
            except ssl.SSLZeroReturnError:
                size = 0
            if not size:
                self._has_ended = True
                self._loop.call_soon(self._ended)
                return filled, False
            filled += size
        return filled, True

    def _ended(self) -> None:
        """The peer has said that it sends no more."""
        if self._state is _State.OPEN and not self._above.eof_received():
            self.close()

    # Out, and what else the connection asks of its transport.

    def write(self, data: Piece) -> None:
        """Send bytes, encrypted."""
        if self._state is not _State.OPEN:
            return
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        for start in range(0, len(view), ENCRYPTED_AT_ONCE):
            self._tls.write(view[start : start + ENCRYPTED_AT_ONCE])
            self._flush()

    def writelines(self, pieces: list[Any]) -> None:
        """Send pieces: joined, since each by itself would be a record of TLS."""
        self.write(b"".join(pieces))

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that the peer has not taken."""
        return int(self._raw.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self._raw.set_write_buffer_limits(high=high, low=low)

    def pause_reading(self) -> None:
        """Leave what comes in the socket."""
        self._is_wanted = False
        if self._state is _State.OPEN or not self._received_bytes:  # else a step is under way
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on, first what has come already."""
        self._is_wanted = True
        if self._state is _State.OPEN:
            self._raw.resume_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._state is _State.OPEN and self._is_wanted:
            self._decrypt()

    def is_closing(self) -> bool:
        """Whether it is on its way to be closed."""
        return self._state is _State.CLOSED or bool(self._raw.is_closing())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the socket; `ssl_object` is the TLS of it."""
        return self._tls if name == "ssl_object" else self._raw.get_extra_info(name, default)

    def close(self) -> None:
        """Say that no more comes, and close after what was sent."""
        if self._state is _State.OPEN:
            with contextlib.suppress(ssl.SSLError):  # the peer has not said so, or all is over
                self._tls.unwrap()
            self._flush()
        self._close_state()
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._close_state()
        self._raw.abort()
