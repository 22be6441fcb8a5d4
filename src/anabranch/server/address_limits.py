"""How many connections single addresses may have: `max.connections.per.ip.overrides`, looked up.

What: the setting names addresses and hosts. A host's addresses are asked of the name service when
the setting changes, each of them has the host's limit, and what the setting said before holds until
then. Source: Kafka's ConnectionQuotas, which takes the first address alone. Rule kept: the loop
waits for no name service. Not here: who is let in (`listener.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping

from anabranch.core.settings.validation import PER_ADDRESS, limits_by_address
from anabranch.server.logs import logger

LOG = logger("listener")


class AddressLimits:
    """The limits by address, as the setting had them when it was followed last."""

    def __init__(self) -> None:
        self._text = ""
        self._by_address: dict[str, int] = {}
        self._lookup: asyncio.Task[None] | None = None

    def of(self, address: str) -> int | None:
        """How many connections that address may have; None when the setting does not name it."""
        return self._by_address.get(address)

    def follow(self, text: str) -> None:
        """Take the setting as it is now."""
        if text == self._text:
            return
        self._text = text
        self.stop()
        limits = limits_by_address(text) or {}
        known = {written(host): most for host, most in limits.items() if written(host)}
        names = {host: most for host, most in limits.items() if not written(host)}
        if not names:
            self._by_address = known
            return
        self._by_address.update(known)
        self._lookup = asyncio.get_running_loop().create_task(self._look_up(names, known))

    def stop(self) -> None:
        """Look nothing up any more."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _look_up(self, names: Mapping[str, int], known: Mapping[str, int]) -> None:
        found: dict[str, int] = {}
        for host, most in names.items():
            try:
                found.update(dict.fromkeys(await addresses_of(host), most))
            except (OSError, UnicodeError) as fault:
                why = f"{PER_ADDRESS} has no effect for it: {fault}"
                LOG.warning("a host has no address", host=host, why=why)
        self._by_address = {**found, **known}


def written(host: str) -> str:
    """An address as sockets write it; "" for the name of a host."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


async def addresses_of(host: str) -> list[str]:
    """All addresses of a host; the case of its letters counts for nothing. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
