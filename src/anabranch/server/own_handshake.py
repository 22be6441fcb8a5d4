"""Whether a node could still speak to its own kind with other keys or trust: a handshake in memory.

What: nodes speak to a listener with the keys and trust of that listener, so a node can try a change
on itself before it is stored: its new keys with the trust that other nodes still have, and its new
trust with their keys. Rule kept: where they could not speak before, any change is let through, so
that it can be repaired step by step. Hosts are not compared: a listener has several.
Source: Kafka's SslFactory, which tries the listener between brokers so.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from anabranch.client.handshake_faults import why_client_fails, why_not_secure

ROUNDS = 10
"""A handshake takes three."""


class Side(NamedTuple):
    """How a node lets in, and how it speaks. `client` is made for this alone: it is told to compare
    no hosts."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def why_apart(before: Side | None, after: Side) -> str:
    """Why nodes could not speak to each other while a change is under way, "" if they could;
    `before` is None where they cannot now."""
    if before is None or _why_fails(*before):
        return ""
    pairs = (after, Side(after.server, before.client), Side(before.server, after.client))
    return next(filter(None, (_why_fails(*each) for each in pairs)), "")


def _why_fails(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname = False
    client.verify_mode = ssl.CERT_REQUIRED
    asking = client.wrap_bio(to_client, to_server)
    asked = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [asking, asked]
    for _ in range(ROUNDS):
        for each in tuple(pending):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as fault:
                told = why_not_secure(fault, "it") if each is asking else why_client_fails(fault)
                return told.rstrip(".")
            pending.remove(each)
        if not pending:
            return ""
    return "the TLS handshake does not end"
