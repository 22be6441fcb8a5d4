"""A connection of a client for the table of rights, and for rows that send requests as they are.

Clients come from CLIENT, whoever administers the cluster from ADMIN.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest
from anabranch.core.wire.schema import Message
from compat.row import Failed

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
SECONDS = 30.0
SIZE = struct.Struct(">i")
ALL = 2
"""The operation."""


class Asked(Protocol):
    """A server: a `Peer` is one."""

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""

    def wait(self, ask: Callable[[], Any], what: str) -> Any:
        """Ask again until the answer is true."""


class Wire:
    """A connection to an address, from one; a request at a time, and nothing is asked again."""

    def __init__(
        self,
        address: str,
        source: str = ADMIN,
        client_id: str = "rights",
        login: tuple[str, str] | None = None,
    ) -> None:
        """`login` is a name and a password for PLAIN."""
        self.address, self.source, self.client_id = address, source, client_id
        self.login = login
        self.numbers = itertools.count(1)
        self.open()

    def open(self) -> None:
        """Connect, and log in."""
        host, port = self.address.split(":")
        self.socket = socket.create_connection((host, int(port)), SECONDS, (self.source, 0))
        if self.login is not None:
            self.ask(SaslHandshakeRequest("PLAIN"))
            name, password = self.login
            answer = self.ask(SaslAuthenticateRequest(f"\0{name}\0{password}".encode()))
            if answer is None or answer.error_code:
                raise Failed(f"no login of {name}: {answer}")

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def ask(self, body: Message, version: int | None = None) -> Any:
        """The answer, in the newest version unless another is given; None where it hangs up."""
        spec = API_KEYS[type(body).api_key]
        used = max(spec.versions) if version is None else version
        frame = frame_request(next(self.numbers), self.client_id, body, used)
        try:
            self.socket.sendall(b"".join(frame))
            answer = self._exactly(SIZE.unpack(self._exactly(SIZE.size))[0])
        except ConnectionError:
            self.socket.close()
            self.open()
            return None
        except TimeoutError:
            raise Failed(f"no answer to {spec.name} version {used}") from None
        return read_response(answer, spec.response, used)[1]

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise ConnectionError
            found += piece
        return bytes(found)
