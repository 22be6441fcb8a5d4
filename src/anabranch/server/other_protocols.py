"""Who speaks another protocol on a port of ours: told by the first bytes, for a line in the log.

Why: a load balancer's health check, a browser or a client that was told to use TLS is a mistake in
somebody's configuration, and "a frame of 1195725856 bytes" does not say whose. The first four bytes
of a Kafka request are its size, which no other protocol's greeting makes a likely one.

Rule kept: this only words the refusal; the connection is closed either way. Not here: TLS itself.
"""

from __future__ import annotations

GREETINGS = {
    **dict.fromkeys(
        (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"),
        "an HTTP request arrived on a listener for the Kafka protocol; "
        "metrics and health are served on http.listener",
    ),
    b"PRI ": "an HTTP/2 client connected to a listener for the Kafka protocol; "
    "metrics and health are served on http.listener",
    b"SSH-": "an SSH client connected to a listener for the Kafka protocol; correct its port",
    **dict.fromkeys(
        (b"PROX", b"\r\n\r\n"),
        "a load balancer sent a PROXY header, which this listener does not support; disable the "
        "PROXY protocol there",
    ),
}
"""The first four bytes of other protocols, and what to say of them."""

TLS_HANDSHAKE = b"\x16\x03"
TLS = (
    "a TLS handshake arrived on a plaintext listener; set security.protocol=PLAINTEXT in the client"
)
OLD_TLS_HELLO = 1
"""SSLv2's message type, behind two bytes of length whose highest bit is set."""

SMALLEST_GREETING = int.from_bytes(b"\r\n\r\n", "big")
"""What the smallest of these greetings says as a size: 218 MB."""


def other_protocol(first: bytes) -> str:
    """A sentence about the protocol that begins with these bytes (four or more), "" if unknown."""
    if first[:2] == TLS_HANDSHAKE:
        return TLS
    if len(first) > 3 and first[0] & 0x80 and first[2] == OLD_TLS_HELLO and first[3] in (0, 2, 3):
        return TLS
    return GREETINGS.get(first[:4], "")


def kafka_on_http(first: bytes) -> str:
    """A sentence about bytes that came to the HTTP port and begin no HTTP request, else ""."""
    if first[:2] == TLS_HANDSHAKE:
        return "a TLS handshake arrived on http.listener, which supports plain HTTP; use http://"
    if first[:1] == b"\0":
        return "a Kafka client connected to http.listener; use the port of one of listeners"
    return ""
