"""Connections that a node opens to other nodes of its cluster.

What: `reach` opens one, with the transport that `transport` names for all of them. Why one place:
brokers copy from each other, ask controllers and are asked for, each from another module, and all
of these must speak what the listener on the other side speaks. Today that is plaintext: a node
refuses listeners of other protocols when it starts. Not here: probes that speak no protocol
(`liveness_probe.py`).
"""

from __future__ import annotations

from anabranch.client.connection import DIAL_SECONDS, SOFTWARE_NAME, Connection
from anabranch.client.security import Security

PLAINTEXT = Security()


def transport() -> Security:
    """How other nodes of the cluster are spoken to."""
    return PLAINTEXT


async def reach(
    host: str,
    port: int,
    *,
    client_id: str | None = SOFTWARE_NAME,
    timeout_seconds: float = DIAL_SECONDS,
) -> Connection:
    """A connection to a node of the cluster. Raises ConnectionLost, ClientFault."""
    security = transport()
    return await Connection.open(
        host,
        port,
        client_id=client_id,
        ssl=security.context(),
        login=security.login,
        timeout_seconds=timeout_seconds,
    )
