"""Sending at once, also in the midst of a round of the loop.

What: uvloop keeps what a transport is given until it has handled all that came in this round, so
that one answer waits for the handling of others: of two followers that a batch is sent to, the
first waits until the second's answer is made, too. asyncio's own transports write at once, and so
does this. Rules kept: bytes stay in order (what does not fit now, and all that comes behind it,
goes through the transport); nothing is written once a transport closes, since its descriptor may
be another connection's by then. Only for what is small: it is copied into the kernel here.
"""

from __future__ import annotations

import os
from typing import Any

NO_DESCRIPTOR = -1
_BATCHING = ("uvloop.loop", "TCPTransport")
"""The transport that keeps what it is given; not the one of TLS, which encrypts it."""


def descriptor_of(transport: Any) -> int:
    """What `write_at_once` writes to, NO_DESCRIPTOR where the transport itself does best."""
    kind = type(transport)
    if (kind.__module__, kind.__name__) != _BATCHING:
        return NO_DESCRIPTOR
    return int(transport.get_extra_info("socket").fileno())


def write_at_once(transport: Any, descriptor: int, sent: bytes) -> None:
    """Write a few kilobytes; the transport takes what the kernel does not, and any fault."""
    if (
        descriptor != NO_DESCRIPTOR
        and not transport.is_closing()
        and not transport.get_write_buffer_size()
    ):
        try:
            written = os.write(descriptor, sent)
        except OSError:
            written = 0  # the transport meets the same, and says so
        if written == len(sent):
            return
        sent = sent[written:]
    transport.write(sent)
