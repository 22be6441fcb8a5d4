"""Connections that a node opens to other nodes of its cluster.

What: `reach` opens one, over the transport of the listener that it goes to. Why one place: brokers
copy from each other, ask controllers and are asked for, each from another module, and all of these
must speak what the listener on the other side speaks. Rules kept: keys and certificates are read
again when their files have changed; a node goes on with what it could read last, and says so once.
Not here: probes that speak no protocol (`liveness_probe.py`), which listener has which transport
(`config.py`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress

from anabranch.client.connection import DIAL_SECONDS, SOFTWARE_NAME, Connection
from anabranch.client.security import Security
from anabranch.client.stores import StoreFault
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.server.logs import logger

LOG = logger("outbound")
REMEDY = (
    "correct the files, or change or delete the setting of this node with anabranch configs alter; "
    "until then it uses what it had before"
)
FILES = ("ssl.keystore.location", "ssl.truststore.location")


class Transport:
    """How nodes speak to one kind of listener."""

    def __init__(self, security: Security | None = None) -> None:
        self.security = self._wanted = security or Security()
        self.why = ""
        """Why it goes on with what it had before, "" while it does not."""
        self._context: ssl.SSLContext | None = None
        self._seen: list[tuple[int, int]] = []

    def take(self, security: Security) -> None:
        """Speak so from now on, or once its keys and trust can be read; connections that are open
        go on."""
        self._wanted = security
        with suppress(ClientFault):  # nothing was read before: the next connection says it
            self.context()

    def context(self) -> ssl.SSLContext | None:
        """Keys and trust as their files have them now, or had when they could be read; None without
        TLS. Raises ClientFault where they never could."""
        try:
            found = self._read(self._wanted)
        except ClientFault as fault:
            if self._context is None and self.security.uses_tls:
                self._read(self.security)
            self._keep(fault.message)
            return self._context
        self.why = ""
        return found

    def _read(self, security: Security) -> ssl.SSLContext | None:
        seen = [_stamp(security.tls.get(name, "")) for name in FILES]
        if security != self.security or seen != self._seen:
            self._context = context_of(security)
            self.security, self._seen = security, seen
        return self._context

    def _keep(self, why: str) -> None:
        if why != self.why:
            self.why = why
            LOG.warning("speaking to other nodes with the keys of before", why=why, remedy=REMEDY)


PLAINTEXT = Transport()


def context_of(security: Security) -> ssl.SSLContext | None:
    """Keys and trust of a node towards others; None without TLS. Raises ClientFault."""
    try:
        refuse_endless(security.tls)
    except StoreFault as fault:
        raise ClientFault(ErrorCode.INVALID_CONFIG, str(fault)) from None
    return security.context()


def refuse_endless(tls: Mapping[str, str]) -> None:
    """Raise StoreFault for a pipe or a device: to read it might take for ever."""
    for name in FILES:
        path = tls.get(name, "")
        if path and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise StoreFault(f"{name}: {path} is no regular file.")


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
