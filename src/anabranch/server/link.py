"""One connection below its frames: the way out, and whether it is read.

What: `Link.send` takes the pieces of some answers. What is in memory goes to the transport; as soon
as a part is lent out of a file, all of them go past it (see `loan_sender`), since the two must
never write at the same time: the link is busy until the last byte has left. Which way is decided by
what the pieces are, never by their size or the request's version. Rules kept: nobody else knows
that there are loans; only a plain socket lends, since what goes past a transport that encrypts
would leave as it is; where loans cannot be sent past the transport they are read and go through it;
a fault that is not the peer's is told apart from one that is. Not here: what is held back, what
runs meanwhile, and when no more is read (`core.node.channel`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.types import Loan, Piece
from anabranch.server.loan_sender import LoanSender, in_memory
from anabranch.server.own_faults import described

JOINED_WRITE_BYTES = 16 << 10
"""Answers up to here are joined into one buffer: cheaper than a vector of small ones."""

PEERS_ERRORS = frozenset(
    (errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH)
)
"""Beside those that Python counts as a `ConnectionError` or a timeout: the peer is out of reach."""


class Link:
    """Sends to one peer, and has its bytes read."""

    __slots__ = (
        "_broken", "_given_bytes", "_is_barred", "_is_read", "_is_wanted", "_left", "_sender",
        "_transport", "is_busy", "lends",
    )  # fmt: skip

    def __init__(
        self, transport: Any, left: Callable[[], None], broken: Callable[[BaseException], None]
    ) -> None:
        """`left` is called each time that a link which was busy is not any more; `broken` when it
        was and not all was sent, so that nothing can follow."""
        self._transport = transport
        self._left = left
        self._broken = broken
        self._sender: LoanSender | None = None
        self._given_bytes = 0
        self._is_wanted = self._is_read = True
        self._is_barred = False
        self.is_busy = False
        """Whether what was given to it must have left before anything follows."""
        known = transport.get_extra_info
        self.lends = known("socket") is not None and known("ssl_object") is None
        """Whether parts of files may go past the transport."""

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken yet, as far as this process knows."""
        waiting = int(self._transport.get_write_buffer_size())
        return waiting if self._sender is None else waiting + self._sender.left_bytes

    @property
    def sent_bytes(self) -> int:
        """What has left so far."""
        return self._given_bytes - self.unsent_bytes

    # Out.

    def send(self, pieces: list[Piece], size_bytes: int) -> None:
        """Send pieces of so many bytes after all others; not while it is busy. Raises what keeps
        them from being sent: some may have left."""
        self._given_bytes += size_bytes
        for piece in pieces:
            if isinstance(piece, Loan):
                self._send_lent(pieces)
                return
        if size_bytes <= JOINED_WRITE_BYTES:
            self._transport.write(b"".join(pieces))  # type: ignore[arg-type]
        else:
            self._transport.writelines(pieces)

    def blame(self, fault: BaseException) -> str:
        """What went wrong while sending, as a sentence; "" when the peer is gone."""
        return "" if is_of_peer(fault) else described(fault)

    def _send_lent(self, pieces: Sequence[Piece]) -> None:
        sender = self._sender_of(pieces)
        if sender is None:
            self._transport.writelines([in_memory(piece) for piece in pieces])
        elif not sender.start():
            self._sender, self.is_busy = sender, True

    def _sender_of(self, pieces: Sequence[Piece]) -> LoanSender | None:
        """Who sends them past the transport; None where the transport must: it encrypts, it has
        more to send, which would be overtaken, or there is no room for another handle."""
        if not self.lends or self._transport.get_write_buffer_size():
            return None
        try:
            return LoanSender(self._transport, pieces, self._lent_sent)
        except OSError:
            return None

    def _lent_sent(self, fault: BaseException | None) -> None:
        self._sender, self.is_busy = None, False
        if fault is None:
            self._left()
        else:
            self._broken(fault)

    # In.

    def read(self, *, is_on: bool) -> None:
        """Read what the peer sends, or leave it in its socket."""
        self._is_wanted = is_on
        self._follow()

    def bar(self, *, is_on: bool) -> None:
        """Read nothing although it is wanted, since there is no memory for it, or again."""
        self._is_barred = is_on
        self._follow()

    def _follow(self) -> None:
        is_read = self._is_wanted and not self._is_barred
        if is_read != self._is_read and not self._transport.is_closing():
            self._is_read = is_read
            if is_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # The end.

    def close(self, *, at_once: bool) -> None:
        """End the connection: after what was sent, or at once."""
        if at_once:
            self._transport.abort()
        else:
            self._transport.close()

    def stop(self) -> None:
        """Send nothing more of what is lent: the connection is gone."""
        if self._sender is not None:
            self._sender.stop()
            self._sender, self.is_busy = None, False


def is_of_peer(fault: BaseException) -> bool:
    """Whether sending failed because the peer is gone or out of reach."""
    if isinstance(fault, ConnectionError | TimeoutError):
        return True
    return isinstance(fault, OSError) and fault.errno in PEERS_ERRORS
