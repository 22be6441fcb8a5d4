"""HTTP above the transport of TLS, which has buffers where uvicorn's protocol takes bytes.

What: `HttpOverTls` hands on what `tls_transport.py` has decrypted. Why not the loop's own TLS: its
handshakes would hold up the node's clients, and its connections would count only after them. Not
here: HTTP (`http.py`).
"""

from __future__ import annotations

import asyncio
import ssl

from uvicorn.protocols.http.h11_impl import H11Protocol

ROOM_BYTES = 16 << 10
"""One record of TLS; requests are far smaller."""


class HttpOverTls:
    """What a TlsTransport has above it."""

    def __init__(self, http: H11Protocol) -> None:
        self.host = ""
        self._http = http
        self._room = memoryview(bytearray(ROOM_BYTES))

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The socket is connected: the connection counts from now on."""
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self._http.connection_made(transport)
        self._http.scheme = "https"

    def secured(self, _tls: ssl.SSLObject) -> str:
        """Any client may stay that the handshake let in."""
        return ""

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room

    def buffer_updated(self, size: int) -> None:
        """Bytes came."""
        self._http.data_received(bytes(self._room[:size]))

    def eof_received(self) -> bool:
        """The peer sends no more."""
        self._http.eof_received()
        return False

    def pause_writing(self) -> None:
        """The peer does not take what is sent."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._http.resume_writing()

    def connection_lost(self, fault: Exception | None) -> None:
        """The socket is gone."""
        self._http.connection_lost(fault)
