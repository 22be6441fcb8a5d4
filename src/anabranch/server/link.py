"""The way out of one connection: answers leave in order, whatever brings their bytes.

What: `Link.send` takes the pieces of some answers. What is in memory goes to the transport; as soon
as a part is lent out of a file, all of them go past it (see `loan_sender`), since the two must
never write at the same time: the link is busy until the last byte has left. Which way is decided by
what the pieces are, never by their size or the request's version. Rules kept: nobody else knows
that there are loans; where they cannot be sent past the transport they are read and go through it;
a fault that is not the peer's is told apart from one that is. Not here: what is held back, and what
runs meanwhile (`connection`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.types import Loan, Piece
from anabranch.server.loan_sender import LoanSender, in_memory

JOINED_WRITE_BYTES = 16 << 10
"""Answers up to here are joined into one buffer: cheaper than a vector of small ones."""

PEERS_ERRORS = frozenset(
    (errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH)
)
"""Beside those that Python counts as a `ConnectionError` or a timeout: the peer is out of reach."""


class Link:
    """Sends to one peer."""

    __slots__ = ("_ended", "_given_bytes", "_sender", "_transport")

    def __init__(self, transport: Any, ended: Callable[[BaseException | None], None]) -> None:
        """`ended` is called each time that a link which was busy is not any more, with the fault if
        not all was sent: nothing can follow it then."""
        self._transport = transport
        self._ended = ended
        self._sender: LoanSender | None = None
        self._given_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether what was given to it must have left before anything follows."""
        return self._sender is not None

    @property
    def unsent_bytes(self) -> int:
        """What the peer has not taken yet, as far as this process knows."""
        waiting = int(self._transport.get_write_buffer_size())
        return waiting if self._sender is None else waiting + self._sender.left_bytes

    @property
    def sent_bytes(self) -> int:
        """What has left so far."""
        return self._given_bytes - self.unsent_bytes

    def send(self, pieces: list[Piece], size_bytes: int) -> None:
        """Send pieces of so many bytes after all others; not while it is busy. Raises OSError when
        they cannot be sent, and some may have left."""
        self._given_bytes += size_bytes
        if any(isinstance(piece, Loan) for piece in pieces):
            self._send_lent(pieces)
        elif size_bytes <= JOINED_WRITE_BYTES:
            self._transport.write(b"".join(pieces))  # type: ignore[arg-type]
        else:
            self._transport.writelines(pieces)

    def _send_lent(self, pieces: Sequence[Piece]) -> None:
        sender = self._sender_of(pieces)
        if sender is None:
            self._transport.writelines([in_memory(piece) for piece in pieces])
        elif not sender.start():
            self._sender = sender

    def _sender_of(self, pieces: Sequence[Piece]) -> LoanSender | None:
        """Who sends them past the transport; None where the transport must: it has more to send,
        which would be overtaken, or there is no room for another handle."""
        if self._transport.get_write_buffer_size():
            return None
        try:
            return LoanSender(self._transport, pieces, self._lent_sent)
        except OSError:
            return None

    def _lent_sent(self, fault: BaseException | None) -> None:
        self._sender = None
        self._ended(fault)

    def stop(self) -> None:
        """Send nothing more of what is lent."""
        if self._sender is not None:
            self._sender.stop()
            self._sender = None


def is_of_peer(fault: BaseException) -> bool:
    """Whether sending failed because the peer is gone or out of reach."""
    if isinstance(fault, ConnectionError | TimeoutError):
        return True
    return isinstance(fault, OSError) and fault.errno in PEERS_ERRORS
