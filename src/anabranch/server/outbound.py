"""Connections that a node opens to other nodes of its cluster.

What: `reach` opens one, over the transport of the listener that it goes to. Why one place: brokers
copy from each other, ask controllers and are asked for, each from another module, and all of these
must speak what the listener on the other side speaks. Rule kept: keys and certificates are read
again when their files have changed. Not here: probes that speak no protocol (`liveness_probe.py`),
which listener has which transport (`config.py`).
"""

from __future__ import annotations

import os
import ssl

from anabranch.client.connection import DIAL_SECONDS, SOFTWARE_NAME, Connection
from anabranch.client.security import Security

FILES = ("ssl.keystore.location", "ssl.truststore.location")


class Transport:
    """How nodes speak to one kind of listener."""

    def __init__(self, security: Security | None = None) -> None:
        self.security = security or Security()
        self._context: ssl.SSLContext | None = None
        self._seen: list[tuple[int, int]] = []

    def take(self, security: Security) -> None:
        """Speak so from now on; connections that are open go on."""
        if security != self.security:
            self.security, self._context = security, None

    def context(self) -> ssl.SSLContext | None:
        """Keys and trust as their files have them now; None without TLS. Raises ClientFault."""
        if not self.security.uses_tls:
            return None
        seen = [_stamp(self.security.tls.get(name, "")) for name in FILES]
        if self._context is None or seen != self._seen:
            self._context, self._seen = self.security.context(), seen
        return self._context


PLAINTEXT = Transport()


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a path may be any text
        return 0, 0
    return found.st_mtime_ns, found.st_size


async def reach(
    host: str,
    port: int,
    *,
    transport: Transport = PLAINTEXT,
    client_id: str | None = SOFTWARE_NAME,
    timeout_seconds: float = DIAL_SECONDS,
) -> Connection:
    """A connection to a node of the cluster. Raises ConnectionLost, ClientFault."""
    return await Connection.open(
        host,
        port,
        client_id=client_id,
        ssl=transport.context(),
        login=transport.security.login,
        timeout_seconds=timeout_seconds,
    )
